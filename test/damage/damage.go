// Package damage damages stored data for tests.
package damage

import (
	"bytes"
	"math/rand/v2"
)

// Text returns a damaged copy of a text of at least 1024 bytes: a flipped bit, a zeroed block of 512 bytes, two
// exchanged blocks, or the beginning only, which may be empty. The copy may equal the text.
func Text(random *rand.Rand, sound []byte) []byte {
	text := bytes.Clone(sound)
	const block = 512
	at := random.IntN(len(text))
	switch random.IntN(4) {
	case 0:
		text[at] ^= 1 << random.IntN(8)
	case 1:
		clear(text[at/block*block : min(at/block*block+block, len(text))])
	case 2:
		return text[:at]
	case 3:
		a, b := random.IntN(len(text)/block)*block, random.IntN(len(text)/block)*block
		copy(text[a:a+block], sound[b:])
		copy(text[b:b+block], sound[a:a+block])
	}
	return text
}
