package virtual

import (
	"errors"
	"fmt"
	"net/netip"

	"fairlead/internal/kernel/neighbour"

	"golang.org/x/sys/unix"
)

// Announce makes all hosts on the link send packets for the address to this host: with a gratuitous ARP
// request and a reply (RFC 5227, section 3; some hosts take only one of them), or with an
// unsolicited neighbour advertisement (RFC 4861, section 7.2.6). The fence drops it if the
// address is closed.
func (h *Handle) Announce(a netip.Addr, on Link) error {
	frames := [][]byte{neighbour.Gratuitous(a, on.MAC, false), neighbour.Gratuitous(a, on.MAC, true)}
	if a.Is6() {
		frame, err := neighbour.Advertisement(a, on.MAC)
		if err != nil {
			return fmt.Errorf("announce %s: %w", a, err)
		}
		frames = [][]byte{frame}
	}
	for _, f := range frames {
		if err := h.send(f, on); err != nil {
			return fmt.Errorf("announce %s on link %s: %w", a, on.Name, err)
		}
	}
	return nil
}

// send sends a frame with its Ethernet header on a link.
func (h *Handle) send(frame []byte, on Link) error {
	to := &unix.SockaddrLinklayer{Ifindex: on.Index, Halen: 6}
	copy(to.Addr[:], frame[:6])
	err := unix.Sendto(h.frames, frame, unix.MSG_DONTWAIT, to)
	if errors.Is(err, unix.ENETDOWN) {
		return nil // the link's message follows
	}
	return err
}
