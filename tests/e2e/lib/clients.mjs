// The pinned npm clients. They live in npm/, so that the tests' own folder needs no package.json.
import {createRequire} from 'node:module';
import {pathToFileURL} from 'node:url';

const require = createRequire(new URL('../npm/package.json', import.meta.url));
const load = (name) => import(pathToFileURL(require.resolve(name)));

export const {default: OpenAI} = await load('openai');
export const {createOpenAICompatible} = await load('@ai-sdk/openai-compatible');
export const {ChatOpenAI} = await load('@langchain/openai');
export const {HumanMessage} = await load('@langchain/core/messages');
export const {default: Anthropic} = await load('@anthropic-ai/sdk');
export const {createAnthropic} = await load('@ai-sdk/anthropic');
export const ai = await load('ai');
export const {z} = await load('zod');
