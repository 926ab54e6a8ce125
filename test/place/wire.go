package place

import (
	"bytes"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Wire counts packets that a switch forwards.
type Wire struct {
	// Plain counts packets that contain a word.
	Plain atomic.Int64
	// Tunnel and WireGuard count packets of VXLAN and of WireGuard.
	Tunnel, WireGuard atomic.Int64
}

// Watch reads every packet in the place until the test ends.
func Watch(t testing.TB, in Place, word string) *Wire {
	t.Helper()
	seen := &Wire{}
	var fd int
	if err := in(func() (err error) {
		const all = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	wait := unix.NsecToTimeval(int64(50 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-done; unix.Close(fd) })
	go func() {
		defer close(done)
		buf := make([]byte, 1<<16)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err == nil {
				seen.count(buf[:n], word)
			}
		}
	}()
	return seen
}

// count parses a frame: an Ethernet header, then IPv4 or IPv6 without options, then UDP.
func (s *Wire) count(frame []byte, word string) {
	if bytes.Contains(frame, []byte(word)) {
		s.Plain.Add(1)
	}
	at := 14 + 20
	if len(frame) > 13 && frame[12] == 0x86 {
		at = 14 + 40
	}
	if len(frame) < at+4 {
		return
	}
	switch int(frame[at+2])<<8 | int(frame[at+3]) {
	case 4789:
		s.Tunnel.Add(1)
	case 51820:
		s.WireGuard.Add(1)
	}
}
