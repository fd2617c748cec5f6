// A run of the official client: connects in the version that is asked for, takes
// the steps that come as JSON on standard input, and writes what came of each.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const { url, key, version, steps } = JSON.parse(await new Response(process.stdin).text());

// The client asks for its newest version only.
class Transport extends StreamableHTTPClientTransport {
  send(message, options) {
    if (message.method === 'initialize') message.params.protocolVersion = version;
    return super.send(message, options);
  }
}

const failure = (e) => ({ error: { name: e.constructor.name, code: e.code, message: String(e.message), data: e.data } });

const client = new Client({ name: 'integrity-ledger-tests', version: '1.0.0' });
const transport = new Transport(new URL(url), {
  requestInit: { headers: { Authorization: `Bearer ${key}` } },
  reconnectionOptions: { maxRetries: 0, initialReconnectionDelay: 0, maxReconnectionDelay: 0, reconnectionDelayGrowFactor: 1 },
});
client.onerror = (e) => console.error(e.message);
const answers = [];
try {
  await client.connect(transport);
  answers.push({
    version: transport.protocolVersion, server: client.getServerVersion(), capabilities: client.getServerCapabilities(),
    instructions: client.getInstructions(), session: transport.sessionId ?? null,
  });
  for (const { method, params } of steps) {
    try {
      switch (method) {
        case 'ping': answers.push({ result: await client.ping() }); break;
        case 'tools/list': answers.push({ result: await client.listTools() }); break;
        case 'tools/call': answers.push({ result: await client.callTool(params) }); break;
        case 'prompts/list': answers.push({ result: await client.listPrompts() }); break;
        default: throw new Error(`no such step: ${method}`);
      }
    } catch (e) {
      answers.push(failure(e));
    }
  }
} catch (e) {
  answers.push(failure(e));
}
await client.close();
console.log(JSON.stringify(answers));
