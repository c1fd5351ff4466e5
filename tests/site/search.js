// The search worker of the built site, run by node: it is given what the page gives it, and prints the places it finds.
// node search.js SITE QUERY...
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const folder = path.join(site, "assets/javascripts/workers");
const worker = fs.readdirSync(folder).find(name => /^search\..*\.js$/.test(name));
const index = JSON.parse(fs.readFileSync(path.join(site, "search/search_index.json"), "utf-8"));

let waiting = null;
const listeners = [];
const scope = {
  console, URL, setTimeout, clearTimeout, TextEncoder, TextDecoder,
  location: {href: "http://localhost/"},
  importScripts() {},
  addEventListener: (kind, listener) => kind === "message" && listeners.push(listener),
  postMessage: message => waiting(message),
};
scope.self = scope.globalThis = scope;
vm.runInNewContext(fs.readFileSync(path.join(folder, worker), "utf-8"), scope);

const SETUP = 0, QUERY = 2;
function told(type, data) {
  return new Promise(resolve => {
    waiting = resolve;
    for (const listener of listeners) listener({data: {type, data}});
  });
}

(async () => {
  await told(SETUP, {...index, options: {suggest: true}});
  const found = [];
  for (const query of queries) {
    const {data} = await told(QUERY, query);
    found.push(data.items.map(group => group.map(item => item.location)));
  }
  console.log(JSON.stringify(found));
})();
