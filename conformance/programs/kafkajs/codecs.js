// KafkaJS brings gzip; a program that uses it plugs the other codecs in, as done here.
'use strict'

const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')

const types = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy, // raw blocks, without Java's framing
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const writeOnly = compress => () => ({
  compress: async encoder => Buffer.from(await compress(encoder.buffer)),
  decompress: async () => {
    throw new Error('nothing is read here')
  },
})

async function plugIn() {
  await zstd.init()
  CompressionCodecs[types.snappy] = snappy
  CompressionCodecs[types.lz4] = writeOnly(lz4.compressFrame)
  CompressionCodecs[types.zstd] = writeOnly(zstd.compress)
}

module.exports = { plugIn, types }
