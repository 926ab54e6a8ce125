// Package jsonsum gives JSON objects a checksum of their text as the last member, "sum". It does not interpret
// the other members. Programs that do not know the member ignore it.
package jsonsum

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
)

// The text before and after the checksum. A last member has this frame.
const (
	before = `,"sum":"`
	after  = `"}`
	length = len(before) + 2*sha256.Size + len(after)
)

// ErrDamaged means that the text of an object is not what [Add] has returned.
var ErrDamaged = errors.New("its checksum is wrong")

// Add returns the text of an object with its checksum. The object must have a member and no space at its end.
func Add(object []byte) []byte {
	text := object[:len(object)-1]
	return append(append([]byte{}, text...), before+sum(text)+after...)
}

// Check returns ErrDamaged if the text has a checksum and another content. It reports whether there is a checksum:
// versions before this package wrote none. A damaged frame of a checksum is a damage, too.
func Check(text []byte) (summed bool, err error) {
	if len(text) < length {
		return false, nil
	}
	content, end := text[:len(text)-length], text[len(text)-length:]
	if end := string(end); end == before+sum(content)+after {
		return true, nil
	}
	if like(end[:len(before)], before)+like(end[len(end)-len(after):], after) > (len(before)+len(after))/2 {
		return true, ErrDamaged
	}
	return false, nil
}

func sum(text []byte) string {
	all := sha256.Sum256(text)
	return hex.EncodeToString(all[:])
}

// like returns how many bytes of a text are those of a frame.
func like(text []byte, frame string) (same int) {
	for i := range text {
		if text[i] == frame[i] {
			same++
		}
	}
	return same
}
