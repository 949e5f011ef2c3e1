// The bundled model's reference answers, and what a client should see of them.
import {readFileSync} from 'node:fs';
import {join} from 'node:path';

import {kRoot} from './processes.mjs';

export const kCases = JSON.parse(readFileSync(join(kRoot, 'tests/tiny-model/cases.json'), 'utf8')).cases;
export const kTextCases = kCases.filter((c) => c.robust && c.messages && !c.image && !c.images);

// The family's notation for the arguments of a call: `city:<|"|>Paris<|"|>,n:[1,true]`.
class NotationReader {
  constructor(text) {
    this.text = text;
    this.at = 0;
  }
  take(token) {
    if (!this.text.startsWith(token, this.at)) return false;
    this.at += token.length;
    return true;
  }
  until(stops) {
    const begin = this.at;
    while (this.at < this.text.length && !stops.some((s) => this.text.startsWith(s, this.at))) ++this.at;
    return this.text.slice(begin, this.at);
  }
  value() {
    if (this.take('<|"|>')) {
      const text = this.until(['<|"|>']);
      this.take('<|"|>');
      return text;
    }
    if (this.take('{')) return this.members();
    if (this.take('[')) {
      const items = [];
      while (!this.take(']')) {
        items.push(this.value());
        this.take(',');
      }
      return items;
    }
    return JSON.parse(this.until([',', '}', ']']));
  }
  members() {
    const object = {};
    while (!this.take('}')) {
      const key = this.until([':']);
      this.take(':');
      object[key] = this.value();
      this.take(',');
    }
    return object;
  }
}

// {content, reasoning, calls, finish} of a raw completion.
export function parseCompletion(raw) {
  let text = raw.replace(/(<turn\|>|<\|tool_response>)$/, '');
  let reasoning = '';
  const thought = /^<\|channel>thought\n([\s\S]*?)\n?<channel\|>/.exec(text);
  if (thought) {
    reasoning = thought[1];
    text = text.slice(thought[0].length);
  }
  const calls = [];
  text = text.replace(/<\|tool_call>call:([^{]*)\{([\s\S]*?)<tool_call\|>/g, (_, name, rest) => {
    calls.push({name, args: new NotationReader(rest).members()});
    return '';
  });
  return {content: text, reasoning, calls, finish: calls.length > 0 ? 'tool_calls' : 'stop'};
}

export function caseBody(c, more = {}) {
  return {model: 'flotilla-tiny', messages: c.messages, ...(c.tools ? {tools: c.tools} : {}), temperature: 0,
          enable_thinking: c.enable_thinking, return_token_ids: true, ...more};
}
