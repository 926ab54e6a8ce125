package overlay

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// Target is a path through an overlay, from this host to another.
type Target struct {
	// Local and Peer are the hosts' addresses in the network.
	Local, Peer netip.Addr
	// MTU is the network's MTU, in bytes.
	MTU int
	// Underlay is this host's link that carries the overlay. Remote is the other
	// host's address in the underlay.
	Underlay string
	Remote   netip.Addr
	Overlay  model.Overlay
	// Enter runs a function in the namespace in which to open sockets. If nil, they
	// are opened in the caller's namespace.
	Enter func(func() error) error
}

func (t Target) enter(do func() error) error {
	if t.Enter == nil {
		return do()
	}
	return t.Enter(do)
}

// Targets returns the paths to the other hosts of a network, one for each address
// family of the network. The engine must have completed the network. Peers without
// ranges cannot be checked and are skipped.
func Targets(n model.Network, f plan.Facts) []Target {
	var all []Target
	for _, p := range n.Overlay.Peers {
		for i, peer := range p.Own(n) {
			local := n.Subnets[i].HostAddress()
			if local == peer {
				continue
			}
			all = append(all, Target{Local: local, Peer: peer, MTU: n.LinkMTU(),
				Underlay: f.Links[p.Address.String()].Name,
				Remote:   p.Address, Overlay: n.Overlay})
		}
	}
	return all
}

// The sizes in bytes: small is a packet that fits through every link, streamBytes
// a TCP stream that is long enough to be segmented.
const (
	small         = 128
	streamBytes   = 1 << 20
	streamTimeout = 10 * time.Second
)

var errCorrupted = errors.New("the received data differs from the sent data")

// Report is the result of a check.
type Report struct {
	Target Target
	// Replies is true if the other host answered. Unsummed is true if it answered
	// only datagrams without a checksum.
	Replies, Unsummed bool
	// Blocked names the rule in this host's firewall that drops the overlay's
	// datagrams. The caller of Check may set it; it explains why no answer comes.
	Blocked string
	// There and Back are the largest packets that arrived in each direction, in
	// bytes; the network's MTU if the path is good.
	There, Back int
	// PeerMTU is the network's MTU on the other host, 0 if unknown.
	PeerMTU int
	// Corrupted counts datagrams that arrived with other data than was sent.
	Corrupted int
	// Stream is why a TCP stream failed, nil if it did not. It is not tried if
	// packets are lost because of their size.
	Stream error
}

// Check sends packets through the overlay and reports which arrive. An error means
// that it could not send at all, or that ctx ended.
func (t Target) Check(ctx context.Context) (Report, error) {
	r := Report{Target: t}
	if err := r.datagrams(ctx); err != nil {
		return r, fmt.Errorf("check the path to %s: %w", t.Peer, err)
	}
	if r.Replies && r.There == t.MTU && r.Back == t.MTU {
		r.Stream = t.stream(ctx, streamBytes, streamTimeout)
	}
	return r, ctx.Err()
}

// datagrams tests whether the peer answers, and for which sizes.
func (r *Report) datagrams(ctx context.Context) error {
	p, err := r.Target.newProber()
	if err != nil {
		return err
	}
	defer p.conn.Close()
	defer func() { r.Corrupted = p.corrupted }()
	heard, err := p.crosses(ctx, askSmall, small)
	if err != nil {
		return err
	}
	if r.Replies = len(heard) > 0; !r.Replies {
		r.Unsummed, err = p.bare(ctx, r.Target.Peer)
		return err
	}
	if _, err = p.crosses(ctx, askMTU, small); err != nil {
		return err
	}
	r.PeerMTU = p.peerMTU
	if r.There, err = p.fits(ctx, askSmall, r.Target.MTU); err != nil {
		return err
	}
	// A packet that does not arrive cannot return, so r.There limits r.Back.
	r.Back, err = p.fits(ctx, askWhole, r.There)
	return err
}

// fits returns the largest packet up to a size that is answered.
func (p *prober) fits(ctx context.Context, k kind, size int) (int, error) {
	passed, err := p.crosses(ctx, k, size)
	if err != nil || len(passed) > 0 {
		return size, err
	}
	return p.largest(ctx, k, small, size)
}

// bare tests whether datagrams without a checksum are answered. IPv6 always has
// checksums.
func (p *prober) bare(ctx context.Context, peer netip.Addr) (bool, error) {
	if peer.Is6() {
		return false, nil
	}
	if err := sum(p.conn, false); err != nil {
		return false, err
	}
	heard, err := p.crosses(ctx, askBare, small)
	return len(heard) > 0, err
}
