"use strict";
// Answers the program that opened this page, one question at a time, through a WebSocket. A message is the length of
// a JSON object (uint32, little endian), the object, padded with spaces to a multiple of 8 bytes, and values.
// A runtime's own script assigns robustcmp.load(header, values) and robustcmp.ask(header, values).
const robustcmp = {
  // Whoever computes on a graphics card asks this first: without one, Chromium would compute WebGPU on the processor.
  async adapter() {
    const adapter = await navigator.gpu?.requestAdapter();
    if (!adapter) throw new Error("there is no WebGPU here: Chromium finds no adapter");
    if (adapter.info.isFallbackAdapter) throw new Error("there is no WebGPU here but one that the processor computes");
    return [{ vendor: adapter.info.vendor, architecture: adapter.info.architecture }];
  },
};

(() => {
  const socket = new WebSocket(new URL("socket", location.href.replace(/^http/, "ws")));
  socket.binaryType = "arraybuffer";

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

  const failed = (error) => socket.send(packed({ id: null, error: reason(error) }));
  const opened = new Promise((resolve) => socket.addEventListener("open", resolve));
  window.addEventListener("error", (event) => opened.then(() => failed(event.error ?? event.message)));
  window.addEventListener("unhandledrejection", (event) => opened.then(() => failed(event.reason)));
  window.addEventListener("load", () => opened.then(() => socket.send(packed({ id: 0 }))));

  socket.addEventListener("message", async (event) => {
    const [header, values] = unpacked(event.data);
    try {
      const [answer, answered] = await robustcmp[header.call](header, values);
      socket.send(packed({ ...answer, id: header.id }, answered));
    } catch (error) {
      socket.send(packed({ id: header.id, error: reason(error) }));
    }
  });
})();
