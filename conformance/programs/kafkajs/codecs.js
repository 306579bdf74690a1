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

const codec = (compress, decompress) => () => ({
  compress: async encoder => Buffer.from(await compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(await decompress(buffer)),
})

async function plugIn() {
  await zstd.init()
  CompressionCodecs[types.snappy] = snappy
  CompressionCodecs[types.lz4] = codec(lz4.compressFrame, lz4.decompressFrame)
  CompressionCodecs[types.zstd] = codec(zstd.compress, zstd.decompress)
}

module.exports = { plugIn, types }
