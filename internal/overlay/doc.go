// Package overlay tests whether an overlay transports packets between hosts, and
// reports what to change if it does not. It changes nothing itself, and does not
// depend on how the overlay is made.
//
// Theory of operation. Each host answers at its address in the network, on one TCP
// and one UDP port (Responder). The checking host sends through the tunnel:
//
//   - a small datagram: does the peer answer?
//   - a datagram as large as the network's MTU, with the DF bit: do the largest
//     packets of sandboxes fit? If not, which size does? The check asks for an
//     answer as large as the request, or for a small one, so that it can test the
//     two directions separately.
//   - a TCP stream in each direction: often the network card segments it, and
//     offloads that do not support the tunnel corrupt it.
//
// All messages have their own checksums, because the faults may be in those of the
// protocols. If datagrams without a UDP checksum arrive and others do not,
// checksums are corrupted on the path.
//
// Both hosts of a pair see the same faults, except for those of offloads of the
// other's card. So run the check on each host.
package overlay

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"
)

// Port is the TCP and UDP port on which each host answers, at its addresses in the
// network.
const Port = 14789

// A message consists of the magic, the sender's number for it, its kind, padding,
// and a checksum of these (CRC-32, IEEE).
const (
	magic      = "fairlead"
	kindAt     = len(magic) + 8
	minMessage = kindAt + 1 + crc32.Size
)

// kind is the kind of a message.
type kind byte

const (
	// askSmall asks for a small answer, askWhole for one as large as the request, and
	// askBare for one without a UDP checksum (IPv4 only).
	askSmall kind = iota
	askWhole
	askBare
	// answer means that the request arrived unchanged, damaged that it did not.
	answer
	damaged
	// askMTU asks for the network's MTU on the other host. answerMTU has it, as 4
	// bytes after the kind. Older versions do not answer askMTU.
	askMTU
	answerMTU
)

// message returns a message of the given size in bytes.
func message(size int, number uint64, k kind) []byte {
	m := make([]byte, max(size, minMessage))
	copy(m, magic)
	binary.BigEndian.PutUint64(m[len(magic):], number)
	m[kindAt] = byte(k)
	for i := kindAt + 1; i < len(m); i++ {
		m[i] = byte(i ^ i>>8)
	}
	seal(m)
	return m
}

// withMTU returns an answer with an MTU.
func withMTU(number uint64, mtu int) []byte {
	m := message(minMessage+4, number, answerMTU)
	binary.BigEndian.PutUint32(m[kindAt+1:], uint32(mtu))
	seal(m)
	return m
}

// mtuOf returns the MTU in an answerMTU message.
func mtuOf(m []byte) (int, bool) {
	_, k, whole, ok := parse(m)
	if !ok || !whole || k != answerMTU || len(m) != minMessage+4 {
		return 0, false
	}
	return int(binary.BigEndian.Uint32(m[kindAt+1:])), true
}

func seal(m []byte) {
	binary.BigEndian.PutUint32(m[len(m)-crc32.Size:], crc32.ChecksumIEEE(m[:len(m)-crc32.Size]))
}

// parse parses a message. ok is false if it is not one of this package. whole is
// false if its checksum is wrong.
func parse(m []byte) (number uint64, k kind, whole, ok bool) {
	if len(m) < minMessage || !bytes.HasPrefix(m, []byte(magic)) {
		return 0, 0, false, false
	}
	whole = crc32.ChecksumIEEE(m[:len(m)-crc32.Size]) == binary.BigEndian.Uint32(m[len(m)-crc32.Size:])
	return binary.BigEndian.Uint64(m[len(magic):]), kind(m[kindAt]), whole, true
}

// The limits of one stream: bytes in each direction, and duration.
const (
	maxStream  = 16 << 20
	streamTime = 30 * time.Second
)

// fill writes the test data of a stream from an offset on.
func fill(b []byte, offset int) {
	for i := range b {
		at := offset + i
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
}
