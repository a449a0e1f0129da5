// Prints the records of Avro files as JSON, read by avsc: the values of each, or why it is refused.
"use strict";
const avro = require("avsc");

// Integers of 64 bits do not fit JavaScript's numbers.
const long = avro.types.LongType.__with({
  fromBuffer: (buffer) => buffer.readBigInt64LE(),
  toBuffer: (value) => {
    const buffer = Buffer.alloc(8);
    buffer.writeBigInt64LE(value);
    return buffer;
  },
  fromJSON: BigInt,
  toJSON: Number,
  isValid: (value) => typeof value === "bigint",
  compare: (one, other) => (one < other ? -1 : one > other ? 1 : 0),
});

class DateOf extends avro.types.LogicalType {
  _fromValue(days) {
    return new Date(days * 86400000).toISOString().slice(0, 10);
  }
}

class TimeOf extends avro.types.LogicalType {
  _fromValue(micros) {
    const whole = BigInt.asIntN(64, BigInt(micros));
    const rest = ((whole % 1000000n) + 1000000n) % 1000000n;
    const text = new Date(Number((whole - rest) / 1000n)).toISOString().slice(0, 19);
    return { time: `${text}.${String(rest).padStart(6, "0")}` };
  }
}

const logicalTypes = {
  date: DateOf,
  "local-timestamp-micros": TimeOf,
  "timestamp-micros": TimeOf,
};

function plain(value) {
  if (typeof value === "bigint") return { long: String(value) };
  if (Buffer.isBuffer(value)) {
    return { bytes: value.toString("hex").replace(/^0+(?=.)/, "") };
  }
  if (Array.isArray(value)) return value.map(plain);
  if (value === null || typeof value !== "object" || "time" in value) return value;
  return Object.values(value).map(plain);
}

function rows(path) {
  return new Promise((resolve) => {
    const found = [];
    const parseHook = (schema) =>
      avro.Type.forSchema(schema, { logicalTypes, registry: { long } });
    avro
      .createFileDecoder(path, { parseHook })
      .on("data", (each) => found.push(plain(each)))
      .on("error", (error) => resolve(String(error)))
      .on("end", () => resolve(found));
  });
}

(async () => {
  const found = {};
  for (const path of process.argv.slice(2)) found[path] = await rows(path);
  console.log(JSON.stringify(found));
})();
