// Reads a stream as bytes came, for what the clients hide.

// {head, frames, comments, text}: frames are the parsed data lines, '[DONE]' as a string.
export async function readSse(response) {
  const decoder = new TextDecoder('utf-8', {fatal: true});
  let text = '';
  for await (const chunk of response.body) text += decoder.decode(chunk, {stream: true});
  text += decoder.decode();
  return {...parseSse(text), response};
}

export function parseSse(text) {
  const frames = [];
  let comments = 0;
  const parts = text.split('\n\n');
  if (parts.pop() !== '') throw new Error('the stream ends inside a frame');
  for (const part of parts) {
    if (part.startsWith(':')) {
      ++comments;
    } else if (part === 'data: [DONE]') {
      frames.push('[DONE]');
    } else if (part.startsWith('data: ')) {
      frames.push(JSON.parse(part.slice(6)));
    } else {
      throw new Error(`not a frame: ${part}`);
    }
  }
  return {frames, comments, text};
}

// {events, comments, text}: the named events of a stream, each its data with the name as `event`.
export async function readEvents(response) {
  const decoder = new TextDecoder('utf-8', {fatal: true});
  let text = '';
  for await (const chunk of response.body) text += decoder.decode(chunk, {stream: true});
  text += decoder.decode();
  const parts = text.split('\n\n');
  if (parts.pop() !== '') throw new Error('the stream ends inside a frame');
  const events = [];
  let comments = 0;
  for (const part of parts) {
    const named = /^event: (\S+)\ndata: (.*)$/.exec(part);
    if (named) {
      events.push({event: named[1], ...JSON.parse(named[2])});
    } else if (part.startsWith(':')) {
      ++comments;
    } else {
      throw new Error(`not an event: ${part}`);
    }
  }
  return {events, comments, text};
}

// The choices that the frames add up to.
export function assemble(frames) {
  const choices = [];
  for (const frame of frames) {
    for (const part of frame.choices ?? []) {
      const choice = (choices[part.index] ??= {content: '', reasoning: '', calls: [], ids: [], logprobs: [], finish: null, roles: 0});
      const {delta} = part;
      if (delta.role) ++choice.roles;
      choice.content += delta.content ?? '';
      choice.reasoning += delta.reasoning_content ?? '';
      for (const piece of delta.tool_calls ?? []) {
        const call = (choice.calls[piece.index] ??= {name: piece.function.name, id: piece.id, arguments: ''});
        call.arguments += piece.function.arguments;
      }
      choice.ids.push(...(part.token_ids ?? []));
      choice.logprobs.push(...(part.logprobs?.content ?? []));
      if (part.finish_reason) {
        if (choice.finish) throw new Error('a choice finished twice');
        choice.finish = part.finish_reason;
      }
    }
  }
  return choices;
}
