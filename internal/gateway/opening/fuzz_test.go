package opening

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzHello checks that the framing needs no more bytes than its limit, and that neither the
// division into records nor what follows changes the ClientHello.
func FuzzHello(f *testing.F) {
	f.Add([]byte{22, 3, 1, 0, 8, 1, 0, 0, 4, 9, 9, 9, 9}, 3)
	f.Add(append([]byte{22, 3, 1, 0, 47, 1, 0, 0, 43, 3, 3}, append(make([]byte, 33), 0, 2, 0x13, 1, 1, 0, 0, 0)...), 5)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		message, want, err := assemble(b)
		if err != nil {
			return
		}
		if want > 0 {
			if want <= len(b) || want > mostRecords+recordHead+1<<14 {
				t.Fatalf("%d bytes: want %d", len(b), want)
			}
			return
		}
		var records []byte
		for part := range slices.Chunk(message, 1+max(size, -size-1)%len(message)) {
			records = append(append(records, handshake, 3, 3, byte(len(part)>>8), byte(len(part))), part...)
		}
		again, want, err := assemble(append(records, "rest"...))
		if err == ErrLargeHello {
			return // too many records
		}
		if err != nil || want != 0 || !bytes.Equal(again, message) {
			t.Fatalf("divided: %d bytes, want %d, %v", len(again), want, err)
		}
		one, oneErr := parseHello(message)
		two, twoErr := parseHello(again)
		if (oneErr == nil) != (twoErr == nil) || one.ServerName != two.ServerName {
			t.Fatalf("%+v %v, %+v %v", one, oneErr, two, twoErr)
		}
	})
}
