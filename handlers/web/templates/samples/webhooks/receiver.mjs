import { createServer } from "node:http";

// node receiver.mjs FILE [PORT]; FILE exports verify(headers, body, secret):
// it returns the event of a signed body, and throws for any other.
const { verify } = await import(`./${process.argv[2]}`);
const secret = process.env.INTEGRITY_WEBHOOK_SECRET;
if (!secret) throw new Error("set INTEGRITY_WEBHOOK_SECRET");
const seen = new Set(); // yours lasts: a table, in one transaction with the effect

createServer(async (request, response) => {
  let status = 204;
  try {
    const chunks = [];
    let size = 0;
    for await (const chunk of request) {
      if ((size += chunk.length) > 65536) throw new Error("the body is too long");
      chunks.push(chunk);
    }
    const event = verify(request.headers, Buffer.concat(chunks), secret);
    const test = event.companyReference === "service:webhook-test";
    if (!seen.has(event.id)) {
      console.log(test ? "a test" : event.recordStatus, event.id, event.publicId);
    }
    seen.add(event.id);
  } catch (error) {
    console.log("refused:", error.message);
    status = 401;
  }
  response.writeHead(status).end();
}).listen(process.argv[3] ?? 8090, "127.0.0.1", function () {
  console.log(`listening on 127.0.0.1:${this.address().port}`);
});
