// Classify a picture with fetch: `node examples/classify_fetch.mjs 7.png` (Node 18 or later).
import { readFile } from "node:fs/promises";

const [, program, picture] = process.argv;
if (!picture) {
  console.error(`usage: node ${program} PICTURE`);
  process.exit(2);
}
const url = process.env.CAPSNET_URL ?? "http://localhost:8000";
const form = new FormData();
form.append("file", new Blob([await readFile(picture)]));
const answer = await fetch(`${url}/classify`, { method: "POST", body: form });
const found = await answer.json();
if (!answer.ok) throw new Error(`${found.title}: ${found.detail}`);
console.log(found.predictions[0].class_name);
