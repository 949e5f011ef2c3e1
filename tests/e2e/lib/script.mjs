// The script that the tests against a scripted engine share: one rule per subject, chosen by the user's message.

const kWeatherCall = ['<|tool_call>call:get_wea', 'ther{city:<|"|>', 'Par', 'is<|"|>}', '<tool_call|>'];

export const kScript = {
  model: 'scripted',
  context_length: 600,
  rules: [
    {match: {user: 'hello'}, steps: [{words: 'Hello from the script.'}, {end: true}]},
    {match: {user: 'count'}, delay_ms: 5,
     steps: [{repeat: 100, steps: [{text: 'tick '}]}, {end: true}]},
    {match: {user: 'endless'}, delay_ms: 5, steps: [{text: 'tick '}], loop: true},
    {match: {user: 'fast forever'}, steps: [{text: 'x'}], loop: true},
    {match: {user: 'stops'}, steps: [{text: 'one tw'}, {text: 'o thr'}, {text: 'ee four'}, {end: true}]},
    {match: {user: 'stop inside'}, steps: [{text: 'a STOP b'}, {text: ' c'}, {end: true}]},
    {match: {user: 'stop overlap'}, steps: [{text: 'xx'}, {text: 'abcd'}, {end: true}]},
    {match: {user: 'stop emoji'}, steps: [{text: 'go '}, {bytes: 'F0 9F'}, {bytes: '9A 80'}, {text: ' on'}, {end: true}]},
    {match: {user: 'split'}, steps: [{bytes: 'F0 9F'}, {bytes: '98 80'}, {bytes: 'E8 B5'}, {bytes: '8B'}, {bytes: '20'}, {end: true}]},
    {match: {user: 'weather'}, steps: [...kWeatherCall, {end: true}]},
    {match: {user: 'say and call'}, steps: [{words: 'Let me look.'}, ...kWeatherCall, {end: true}]},
    {match: {user: 'time'}, steps: ['<|tool_call>call:now{}<tool_call|>', {end: true}]},
    {match: {user: 'two calls'}, steps: [...kWeatherCall, '<|tool_call>call:now{}<tool_call|>', {end: true}]},
    {match: {user: 'forecast', prompt: 'sunny in Paris'}, steps: [{words: 'It is sunny.'}, {end: true}]},
    {match: {user: 'forecast'}, steps: [...kWeatherCall, {end: true}]},
    {match: {user: 'cut call'}, steps: ['<|tool_call>call:get_weather{city:<|"|>', {repeat: 50, steps: [{text: 'long '}]}, '<|"|>}<tool_call|>']},
    {match: {user: 'think'}, steps: ['<|channel>', 'thought\n', {words: 'I should greet.'}, '\n<channel|>', {words: 'Good day.'}, {end: true}]},
    {match: {user: 'seed'}, steps: [{echo: 'seed'}, {text: '/'}, {echo: 'choice'}, {end: true}]},
    {match: {user: 'echo'}, steps: [{echo: 'user'}, {end: true}]},
    {match: {user: 'unlikely'}, steps: [{text: 'a', logprob: -9999}, {text: 'b', logprob: -0.5}, {end: true}]},
    {match: {user: 'fail early'}, steps: [{fail: {code: 'unavailable', message: 'not now'}}]},
    {match: {user: 'refuse'}, refuse: {code: 'invalid_argument', message: 'Conversation roles must alternate'}, steps: [{end: true}]},
    {match: {user: 'fail late'}, steps: [{words: 'half an answer'}, {wait_ms: 50}, {fail: 'unavailable'}]},
    {match: {user: 'nan'}, steps: [{words: 'half'}, {nan: true}]},
    {match: {user: 'silence'}, start_ms: 25000, steps: [{words: 'At last.'}, {end: true}]},
    {match: {user: 'pause'}, steps: [{words: 'Wait'}, {wait_ms: 12500}, {text: ' over.'}, {end: true}]},
    {match: {user: 'hang'}, steps: [{hang: true}]},
    {match: {user: 'paced'}, delay_ms: 150, steps: [{repeat: 8, steps: [{text: 'tick '}]}, {end: true}]},
  ],
};

export const kTools = [
  {type: 'function', function: {name: 'get_weather', description: 'Weather in a city',
    parameters: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']}}},
  {type: 'function', function: {name: 'now', description: 'The time', parameters: {type: 'object', properties: {}}}},
];

export const ask = (text, more = {}) => ({model: 'scripted', messages: [{role: 'user', content: text}], ...more});
