package topology

import (
	"time"

	"fairlead/internal/kernel"
	"fairlead/internal/lab/result"
)

// conditions returns them as the kernel has them.
func conditions(n result.Netem) kernel.Netem {
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	return kernel.Netem{Delay: seconds(n.Delay), Jitter: seconds(n.Jitter), Loss: n.Loss, Rate: n.Rate, Limit: n.Limit}
}

// SetNetem sets conditions for what each host of the world sends on a wire.
func (w *World) SetNetem(wire string, n result.Netem) error {
	for _, h := range []*kernel.Host{w.client, w.server} {
		if h == nil {
			continue
		}
		if err := h.SetNetem("", wire, conditions(n)); err != nil {
			return err
		}
	}
	return nil
}

// SetClientNetem sets conditions for what the client host sends on a wire.
func (w *World) SetClientNetem(wire string, n result.Netem) error {
	return w.client.SetNetem("", wire, conditions(n))
}

// SetSandboxNetem sets conditions for what a sandbox of the server host sends on a link.
func (w *World) SetSandboxNetem(sandbox, link string, n result.Netem) error {
	return w.server.SetNetem(w.sandboxes[sandbox].Path(), link, conditions(n))
}

// NetemCounts returns how many packets each host of the world has sent through netem on
// a wire, and how many netem has dropped, added up.
func (w *World) NetemCounts(wire string) (sent, dropped uint64, err error) {
	for _, h := range []*kernel.Host{w.client, w.server} {
		if h == nil {
			continue
		}
		s, d, err := h.NetemCounts("", wire)
		if err != nil {
			return 0, 0, err
		}
		sent, dropped = sent+s, dropped+d
	}
	return sent, dropped, nil
}
