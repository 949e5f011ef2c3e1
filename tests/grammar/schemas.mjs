// Schemas drawn from a seed: the keywords that docs/constrained-output.md lists, nested and mixed.
const kFormats = ['date-time', 'date', 'time', 'uuid', 'email', 'hostname', 'ipv4', 'ipv6', 'uri', 'duration'];
const kWords = ['name', 'id', 'type', 'status', 'value', 'items', 'tags', 'user', 'created_at', 'price', 'is_active',
  'Größe', 'a b', 'x-y', 'quote"d', 'back\\slash', 'notes', 'children', 'lat', 'lon', 'e-mail', 'count'];
const kPatterns = ['^[a-z]{1,8}$', '^\\d{3}-\\d{4}$', '^(red|green|blue)$', 'x', '^[A-Z][a-z]+( [A-Z][a-z]+)?$', '^#[0-9a-f]{6}$',
  '^[^\\s]+$', '\\d+$', '^v\\d+\\.\\d+\\.\\d+$'];

export function makeRandom(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  const below = (n) => Math.floor(next() * n);
  return {below, chance: (p) => next() < p, pick: (list) => list[below(list.length)]};
}

function scalar(r) {
  switch (r.below(12)) {
    case 0: return {type: 'boolean'};
    case 1: return {type: 'null'};
    case 2: {
      const low = r.below(2000) - 1000;
      const schema = {type: 'integer'};
      if (r.chance(0.6)) schema[r.chance(0.5) ? 'minimum' : 'exclusiveMinimum'] = low;
      if (r.chance(0.6)) schema[r.chance(0.5) ? 'maximum' : 'exclusiveMaximum'] = low + 5 + r.below(3000);
      if (r.chance(0.2)) schema.multipleOf = 1 + r.below(4);
      return schema;
    }
    case 3: {
      const low = (r.below(2000) - 1000) / 8;
      const schema = {type: 'number'};
      if (r.chance(0.6)) schema[r.chance(0.5) ? 'minimum' : 'exclusiveMinimum'] = low;
      if (r.chance(0.6)) schema[r.chance(0.5) ? 'maximum' : 'exclusiveMaximum'] = low + 1 + r.below(100) / 4;
      return schema;
    }
    case 4: return {type: 'string', format: r.pick(kFormats)};
    case 5: return {type: 'string', pattern: r.pick(kPatterns)};
    case 6: return {enum: ['a', 'b c', 'ü"\\', 1, 2.5, null, true, [1, {k: 'v'}]].filter(() => r.chance(0.6)).concat('z')};
    case 7: return {const: r.pick(['fixed', 42, false, {deep: [1, 2, 3]}])};
    case 8: return {type: ['string', 'null'], maxLength: r.below(30)};
    case 9: {
      const min = r.below(4);
      return {type: 'string', minLength: min, maxLength: min + r.below(40)};
    }
    case 10: return {type: ['integer', 'string', 'boolean']};
    default: return {type: 'string'};
  }
}

function object(r, depth, defs) {
  const schema = {type: 'object', properties: {}, required: []};
  const count = 1 + r.below(depth > 1 ? 4 : 6);
  for (let i = 0; i < count; i++) {
    const name = r.pick(kWords);
    schema.properties[name] = make(r, depth - 1, defs);
    if (r.chance(0.5) && !schema.required.includes(name)) schema.required.push(name);
  }
  if (r.chance(0.7)) schema.additionalProperties = false;
  else if (r.chance(0.3)) schema.additionalProperties = scalar(r);
  if (r.chance(0.1) && schema.additionalProperties === false) schema.minProperties = 1;
  return schema;
}

function array(r, depth, defs) {
  if (r.chance(0.2)) {
    return {type: 'array', prefixItems: [make(r, depth - 1, defs), make(r, depth - 1, defs)], minItems: 2, items: false};
  }
  const schema = {type: 'array', items: make(r, depth - 1, defs)};
  if (r.chance(0.5)) schema.minItems = r.below(3);
  if (r.chance(0.6)) schema.maxItems = (schema.minItems ?? 0) + r.below(5);
  return schema;
}

function make(r, depth, defs) {
  if (depth <= 0) return defs && r.chance(0.15) ? {$ref: '#/$defs/leaf'} : scalar(r);
  switch (r.below(9)) {
    case 0: case 1: case 2: return object(r, depth, defs);
    case 3: case 4: return array(r, depth, defs);
    case 5: return {anyOf: [scalar(r), make(r, depth - 1, defs)]};
    case 6: return {allOf: [{type: 'object', properties: {kind: scalar(r)}, required: ['kind']}, {properties: {extra: scalar(r)}}]};
    case 7: return {oneOf: [{type: 'object', properties: {t: {const: 'a'}, v: scalar(r)}, required: ['t', 'v'], additionalProperties: false},
      {type: 'object', properties: {t: {const: 'b'}, w: make(r, depth - 1, defs)}, required: ['t'], additionalProperties: false}]};
    default: return scalar(r);
  }
}

// The schema number `index` of the seed. Every fourth is recursive, every tenth is any object.
export function makeSchema(seed, index) {
  const r = makeRandom(seed * 1_000_003 + index);
  if (index % 10 === 9) return {type: 'object'};
  const defs = r.chance(0.4);
  const schema = r.chance(0.8) ? object(r, 3, defs) : make(r, 3, defs);
  if (index % 4 === 3 && schema.properties) {
    schema.properties.next = {anyOf: [{type: 'null'}, {$ref: '#'}]};
    schema.properties.list = {type: 'array', items: {$ref: '#'}, maxItems: 2};
  }
  if (defs) schema.$defs = {leaf: scalar(r)};
  return schema;
}
