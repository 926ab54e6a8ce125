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

// Target is a way through an overlay, from this host to another.
type Target struct {
	// Local and Peer are the hosts' own addresses in the network.
	Local, Peer netip.Addr
	// MTU is the network's, in bytes.
	MTU int
	// Underlay is the host's link that carries it, and Remote the other's address
	// there.
	Underlay string
	Remote   netip.Addr
	Overlay  model.Overlay
	// Enter runs a function in the namespace where sockets are to be opened;
	// nil is the caller's.
	Enter func(func() error) error
}

func (t Target) enter(do func() error) error {
	if t.Enter == nil {
		return do()
	}
	return t.Enter(do)
}

// Targets returns the ways to the other hosts of a network, one for each
// address family inside. The network is as the engine has completed it; hosts
// whose ranges it does not say cannot be checked.
func Targets(n model.Network, f plan.Facts) []Target {
	var all []Target
	for _, p := range n.Overlay.Peers {
		for i, peer := range p.Own(n) {
			own := n.Subnets[i].HostAddress()
			if own == peer {
				continue
			}
			all = append(all, Target{Local: own, Peer: peer, MTU: n.LinkMTU(), Underlay: f.Links[p.Address.String()].Name, Remote: p.Address, Overlay: n.Overlay})
		}
	}
	return all
}

// What is sent: first a packet that every link takes, at last a stream that is
// worth cutting up.
const (
	small          = 128
	streamBytes    = 1 << 20
	streamPatience = 10 * time.Second
)

var errSpoilt = errors.New("other bytes arrived than were sent")

// Report is what a check found out.
type Report struct {
	Target Target
	// Replies says whether the other host answered at all, Unsummed that it did
	// so to datagrams without a checksum only.
	Replies, Unsummed bool
	// Blocked names what in this host's own firewall drops the overlay's datagrams,
	// if the caller of Check finds that out; it explains why nothing answers.
	Blocked string
	// There and Back are the largest packets that crossed, in bytes; the
	// network's MTU where all is well.
	There, Back int
	// PeerMTU is the network's MTU on the other host, 0 if that host does not say.
	PeerMTU int
	// Spoilt counts datagrams that arrived other than they were sent.
	Spoilt int
	// Stream is why a stream of TCP did not cross, nil if it did; it is not
	// tried where packets are lost by their size.
	Stream error
}

// Check sends through the overlay. The error says that it could not even send.
func (t Target) Check(ctx context.Context) (Report, error) {
	r := Report{Target: t}
	if err := r.datagrams(ctx); err != nil {
		return r, fmt.Errorf("check the way to %s: %w", t.Peer, err)
	}
	if r.Replies && r.There == t.MTU && r.Back == t.MTU {
		r.Stream = t.stream(ctx, streamBytes, streamPatience)
	}
	return r, ctx.Err()
}

// datagrams finds out who answers, and to which sizes.
func (r *Report) datagrams(ctx context.Context) error {
	p, err := r.Target.newProber()
	if err != nil {
		return err
	}
	defer p.conn.Close()
	defer func() { r.Spoilt = p.spoilt }()
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
	// What does not get there cannot come back.
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

// bare finds out whether datagrams without a checksum are answered; IPv6 has
// none.
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
