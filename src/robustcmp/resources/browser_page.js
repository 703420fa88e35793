"use strict";
// Answers the program that opened this page, one question at a time: it posts an answer, and the response is the next
// question. Either is the length of a JSON object (uint32, little endian), the object, padded with spaces to a multiple
// of 8 bytes, and values.
// A runtime's own script assigns robustcmp.load(header, values) and robustcmp.ask(header, values).
const robustcmp = {
  // Whoever computes on a graphics card asks this first: without one, Chromium would compute WebGPU on the processor.
  async adapter() {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) throw new Error("there is no WebGPU here: Chromium finds no adapter");
    if (adapter.info.isFallbackAdapter) throw new Error("there is no WebGPU here but one that the processor computes");
    return [{ vendor: adapter.info.vendor, architecture: adapter.info.architecture }];
  },

  // Asks a network about images, so many at once, and returns all rows.
  async rows(header, images) {
    const [count, ...image] = header.shape;
    const bytes = images.byteLength / count;
    const rows = [];
    let row;
    for (let start = 0; start < count; start += header.batch) {
      const part = Math.min(header.batch, count - start);
      const values = images.slice(start * bytes, (start + part) * bytes);
      const [{ shape }, answer] = await robustcmp.ask({ ...header, shape: [part, ...image] }, values);
      if (shape[0] !== part) throw new Error(`expected ${part} rows for ${part} images, received the shape ${shape}`);
      row = shape.slice(1);
      rows.push(answer);
    }
    const joined = new Float32Array(rows.reduce((length, answer) => length + answer.length, 0));
    rows.reduce((start, answer) => (joined.set(answer, start), start + answer.length), 0);
    return [{ shape: [count, ...row] }, joined];
  },
};

(() => {
  function packed(header, values = new Float32Array(0)) {
    const text = new TextEncoder().encode(JSON.stringify(header));
    const start = Math.ceil((4 + text.length) / 8) * 8;
    const message = new Uint8Array(start + values.byteLength).fill(32, 0, start);
    new DataView(message.buffer).setUint32(0, start - 4, true);
    message.set(text, 4);
    message.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), start);
    return message;
  }

  function unpacked(buffer) {
    const start = 4 + new DataView(buffer).getUint32(0, true);
    return [JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, start - 4))), buffer.slice(start)];
  }

  function reason(error) {
    const text = typeof error === "number" ? `number ${error} was thrown` : String(error?.message ?? error);
    return text.slice(0, 2000);
  }

  async function reply(message) {
    const [header, values] = unpacked(message);
    try {
      const [answer, answered] = await robustcmp[header.call](header, values);
      return packed({ ...answer, id: header.id }, answered);
    } catch (error) {
      return packed({ id: header.id, error: reason(error) });
    }
  }

  async function converse() {
    for (let answer = packed({ id: 0 }); ; ) {
      const response = await fetch("answer", { method: "POST", body: answer });
      if (!response.ok) return;
      answer = await reply(await response.arrayBuffer());
    }
  }

  const fail = (error) => fetch("failure", { method: "POST", body: packed({ id: null, error: reason(error) }) });
  window.addEventListener("error", (event) => fail(event.error ?? event.message));
  window.addEventListener("unhandledrejection", (event) => fail(event.reason));
  window.addEventListener("load", converse);
})();
