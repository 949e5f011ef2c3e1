// Strings in many scripts and of many kinds, the same in every run.

export function makeRandom(seed) {
  let state = seed >>> 0;
  const next = () => {  // mulberry32
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return {
    below: (n) => Math.floor(next() * n),
    pick: (list) => list[Math.floor(next() * list.length)],
  };
}

const words = [
  'the', 'The', 'THE', 'quick', 'brownFox', "don't", "I'LL", "we've", "it'S", "they'Re", "'tis", 'naïve', 'café', 'Straße',
  'ſhip', "'ſ", 'İstanbul', 'ǅungla', 'e\u0301te\u0301', 'A\u030A\u0323', 'привет', 'Мир', 'ёлка', 'й', 'и\u0306', 'Καλημέρα',
  'κόσμος', 'שלום', 'עוֹלָם', 'مرحبا', 'بِسْمِ', 'नमस्ते', 'हिन्दी', 'क्षत्रिय', 'สวัสดี', 'น้ำ', 'ภาษาไทย', '你好', '世界', '漢字',
  'こんにちは', 'カタカナ', 'か\u3099', 'ﾊﾝｶｸ', '안녕하세요', '\u1112\u1161\u11ab', '한국', 'Việt', 'Tiê\u0301ng', 'ქართული', 'Հայերեն',
  'አማርኛ', 'বাংলা', 'தமிழ்', 'తెలుగు', 'ខ្មែរ', 'မြန်မာ', 'བོད་', 'ᏣᎳᎩ', '𝔘𝔫𝔦', '𐌰𐌱', '𠀀𠀁', 'ﬁne', 'Ⅷ', '①②', '½', '²³', '٣٤٥', '१२३',
  '0', '7', '42', '123', '1234', '12345678901234567890', '3.14159', '1e-9', '0xFF', '1,000,000', '2024-11-30', '12:34:56',
  'foo_bar', 'camelCase', 'snake_case_name', '__init__', 'HTTPServer', 'iPhone15', 'x86_64', '#include', '</div>', '=>', '!=',
  '->', '::', '&&', '||', '...', '…', '--', '—', '“q”', '«q»', '(a)', '[b]', '{c}', '<d>', '$5', '€10', '£', '¥', '%', '^', '~', '`',
  'def f(x):', 'return x;', 'if (a<b) {', '\\n', '\\u0041', 'http://example.com/a?b=c&d=%20', 'user@example.org', '/usr/bin', 'C:\\x',
  'aGVsbG8gd29ybGQ=', 'Zm9vYmFyCg', '😀', '👍🏽', '👩‍🚀', '👨‍👩‍👧‍👦', '🇩🇪', '❤️', '1️⃣', '🏴\u{E0067}\u{E0062}\u{E007F}', '♥', '→', '∑', '≠',
  '\u0301', '\u200d', '\u200b', '\ufeff', '\u00ad', '\u2060', '\u180e', '▁', '▁▁', '▁the', 'Ġ', 'Ċ', 'Ġthe', '\ufffd', '\u0000', '\u0001', '\u001b[0m',
  '\u007f', '\u0080', '\u009f', '<0x0A>', '<0xE3>', '<unk>', '<pad>', '<eos>', '<bos>', '<mask>',
];
const blanks = [
  ' ', ' ', ' ', '  ', '   ', '    ', '\t', '\t\t', '\n', '\n\n', '\n\n\n', '\r\n', '\r', ' \n', '\n ', ' \n \n', '\t\n', '\u000b', '\u000c', '\u0085',
  '\u00a0', ' \u00a0', '\u1680', '\u2003', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000', '        ', '                ', '\n\n\n\n\n\n\n\n',
];
const ranges = [
  [0x20, 0x7e], [0xa0, 0x24f], [0x300, 0x36f], [0x370, 0x3ff], [0x400, 0x52f], [0x590, 0x5ff], [0x600, 0x6ff], [0x900, 0x97f],
  [0xe00, 0xe7f], [0x1100, 0x11ff], [0x1e00, 0x1fff], [0x2000, 0x206f], [0x20a0, 0x20bf], [0x2100, 0x214f], [0x2190, 0x23ff],
  [0x2500, 0x27bf], [0x3000, 0x30ff], [0x3130, 0x318f], [0x4e00, 0x9fff], [0xac00, 0xd7a3], [0xf900, 0xfaff], [0xff00, 0xffef],
  [0x10000, 0x100ff], [0x1d400, 0x1d7ff], [0x1f000, 0x1faff], [0x20000, 0x2a6df], [0xe0000, 0xe007f],
];

function randomCodePoint(random) {
  for (;;) {
    const c = random.below(0x110000);
    if (c < 0xd800 || c > 0xdfff) return String.fromCodePoint(c);
  }
}

function parts(random, n, make) {
  let text = '';
  for (let i = 0; i < n; i++) text += make();
  return text;
}

// `special`: contents of the added tokens of the vocabulary.
export function makeStrings(count, seed, special) {
  const random = makeRandom(seed);
  const base64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
  const cut = (text) => text.slice(0, 1 + random.below(text.length)).replace(/[\ud800-\udbff]$/, '');
  const kinds = [
    () => parts(random, 1 + random.below(12), () => random.pick(words) + random.pick(blanks)),
    () => parts(random, 1 + random.below(8), () => random.pick(words)),
    () => parts(random, 1 + random.below(6), () => random.pick(blanks)) + random.pick(words) + random.pick(blanks),
    () => parts(random, 1 + random.below(30), () => random.pick(blanks)),
    () => {
      const [first, last] = random.pick(ranges);
      return parts(random, 1 + random.below(24), () => String.fromCodePoint(first + random.below(last - first + 1)) +
          (random.below(6) === 0 ? random.pick(blanks) : ''));
    },
    () => parts(random, 1 + random.below(16), () => {
      const [first, last] = random.pick(ranges);
      return String.fromCodePoint(first + random.below(last - first + 1));
    }),
    () => parts(random, 1 + random.below(12), () => randomCodePoint(random)),
    () => parts(random, 1 + random.below(80), () => base64[random.below(64)]),
    () => parts(random, 1 + random.below(10), () => String(random.below(10 ** (1 + random.below(9)))) + random.pick(['', ' ', ',', '.', '\n', 'a'])),
    () => random.pick(['a', ' ', '\n', '!', 'あ', 'A', '\t', '0', '=', '-', 'ab', 'é', '😀']).repeat(1 + random.below(200)),
    () => parts(random, 1 + random.below(6), () => random.pick(special) + random.pick(['', ' ', '\n', random.pick(words)])),
    () => parts(random, 1 + random.below(6), () => random.pick([cut(random.pick(special)), random.pick(words), random.pick(special).toUpperCase(), random.pick(blanks)])),
    () => parts(random, 1 + random.below(20), () => String.fromCharCode(random.below(0x20)) + random.pick(['', 'x', ' '])),
    () => parts(random, 1 + random.below(8), () => random.pick(words) + parts(random, random.below(5), () => String.fromCodePoint(0x300 + random.below(0x70)))),
    () => parts(random, 20 + random.below(60), () => random.pick(words) + random.pick([' ', ' ', ' ', ', ', '. ', '\n'])),
  ];
  const strings = [''];
  while (strings.length < count) strings.push(kinds[strings.length % kinds.length]());
  return strings;
}
