// Package overlay finds out whether an overlay carries what it should, from
// host to host, and says what to change where it does not. It changes nothing
// itself, and knows nothing of how the overlay is made.
//
// Theory of operation. Each host answers at its own address in the network, on
// one TCP and one UDP port (Responder). Who checks sends there, through the
// tunnel:
//
//   - a small datagram: is anybody there?
//   - one as large as the network's MTU, with the DF bit: does all fit that the
//     sandboxes will send? If not, which size does? The answer is as large as
//     the question or small, as asked for, so that the way there and the way
//     back are told apart.
//   - a stream of TCP each way: it is cut into segments by whoever can, often
//     the card, and that is where tunnels are spoilt.
//
// All of it carries checksums of its own, since the faults that are looked for
// are about the others. Where datagrams without a UDP checksum arrive and others
// do not, checksums are spoilt on the way.
//
// Both hosts of a pair see the same faults but for the offloads of the other's
// card; so each host should check.
package overlay

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"
)

// Port is the TCP and UDP port at which each host answers, at its own addresses
// in the network.
const Port = 14789

// A message is the magic, the sender's number for it, its kind, padding, and a
// checksum of all that (CRC-32, IEEE).
const (
	magic      = "fairlead"
	kindAt     = len(magic) + 8
	minMessage = kindAt + 1 + crc32.Size
)

// kind says what a message is.
type kind byte

const (
	// askSmall wants a small answer, askWhole one as large as the question, and
	// askBare one without a UDP checksum (IPv4 only).
	askSmall kind = iota
	askWhole
	askBare
	// answer says that the question arrived as it was sent, damaged that it did
	// not.
	answer
	damaged
	// askMTU wants to know the MTU that the network has on the other host, and
	// answerMTU is that, as 4 bytes after the kind. Older hosts do not answer it.
	askMTU
	answerMTU
)

// message makes a message of so many bytes.
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

// withMTU makes an answer that holds an MTU.
func withMTU(number uint64, mtu int) []byte {
	m := message(minMessage+4, number, answerMTU)
	binary.BigEndian.PutUint32(m[kindAt+1:], uint32(mtu))
	seal(m)
	return m
}

// mtuOf reads the MTU from such an answer.
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

// parse returns what a message is; ok is false where it is none of ours, and
// whole where it is not as it was sent.
func parse(m []byte) (number uint64, k kind, whole, ok bool) {
	if len(m) < minMessage || !bytes.HasPrefix(m, []byte(magic)) {
		return 0, 0, false, false
	}
	whole = crc32.ChecksumIEEE(m[:len(m)-crc32.Size]) == binary.BigEndian.Uint32(m[len(m)-crc32.Size:])
	return binary.BigEndian.Uint64(m[len(magic):]), kind(m[kindAt]), whole, true
}

// The bounds on one stream: bytes each way, and how long it may take.
const (
	maxStream  = 16 << 20
	streamTime = 30 * time.Second
)

// fill writes the bytes of a stream from an offset on.
func fill(b []byte, offset int) {
	for i := range b {
		at := offset + i
		b[i] = byte(at ^ at>>8 ^ at>>16)
	}
}
