// Reads the specification: a record a line, bytes in base64, null for null.
'use strict'

const fs = require('fs')

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))

// KafkaJS takes headers as an object, with an array for a name that comes more than once.
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    headers[name] = name in headers ? [headers[name], bytes(value)].flat() : bytes(value)
  }
  return headers
}

function readSpec(file) {
  const lines = fs.readFileSync(file, 'utf8').trim().split('\n')
  return lines.map(line => {
    const { partition, timestamp, key, value, headers } = JSON.parse(line)
    return { partition, timestamp: timestamp === null ? null : String(timestamp), key: bytes(key), value: bytes(value), headers: headersOf(headers) }
  })
}

module.exports = { readSpec }
