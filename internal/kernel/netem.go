package kernel

import (
	"errors"
	"fmt"
	"math"
	"time"

	"fairlead/internal/kernel/netns"
	"fairlead/internal/kernel/nlutil"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Netem are conditions of a network that the kernel emulates for the packets that a
// link sends, with the meaning that they have in tc-netem(8). The zero value has none.
type Netem struct {
	// Delay is added to each packet; it varies by up to Jitter in both directions.
	Delay, Jitter time.Duration
	// Loss is the share of packets that are dropped, 0 to 1.
	Loss float64
	// Rate is in bit/s; 0 means no limit.
	Rate float64
	// Limit is the number of packets in the queue; 0 means netem's default, 1000.
	Limit int
}

// ErrNoNetem means that the kernel cannot emulate conditions of a network.
var ErrNoNetem = errors.New("the kernel has no queueing discipline netem: load the module sch_netem (modprobe " +
	"sch_netem), or build the kernel with CONFIG_NET_SCH_NETEM")

// SetNetem sets the conditions for the packets that a link of the host, or of a sandbox,
// sends. Returns ErrNoNetem if the kernel has no netem.
func (h *Host) SetNetem(sandbox, name string, n Netem) error {
	inside, err := h.links.At(sandbox)
	if err != nil {
		return err
	}
	if err := setNetem(inside, name, n); err != nil {
		return fmt.Errorf("set the network conditions of link %s: %w", name, err)
	}
	return nil
}

func setNetem(inside *netlink.Handle, name string, n Netem) error {
	link, err := inside.LinkByName(name)
	if err != nil {
		return err
	}
	attrs := netlink.NetemQdiscAttrs{
		Latency: uint32(n.Delay.Microseconds()), Jitter: uint32(n.Jitter.Microseconds()),
		Loss: float32(100 * n.Loss), Rate64: uint64(math.Round(n.Rate / 8)), Limit: uint32(n.Limit),
	}
	err = inside.QdiscReplace(netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index,
		Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)}, attrs))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return ErrNoNetem
	}
	return err
}

// ProbeNetem returns ErrNoNetem if the kernel has no netem. It tries it in a network
// namespace, which it removes.
func ProbeNetem() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	inside, err := ns.Netlink(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer inside.Close()
	return setNetem(inside, "lo", Netem{Delay: time.Millisecond})
}

// NetemCounts returns how many packets a link of the host, or of a sandbox, has sent
// through netem, and how many netem has dropped.
func (h *Host) NetemCounts(sandbox, name string) (sent, dropped uint64, err error) {
	inside, err := h.links.At(sandbox)
	if err != nil {
		return 0, 0, err
	}
	link, err := inside.LinkByName(name)
	if err != nil {
		return 0, 0, err
	}
	all, err := nlutil.Retry(func() ([]netlink.Qdisc, error) { return inside.QdiscList(link) })
	if err != nil {
		return 0, 0, err
	}
	for _, q := range all {
		if s := q.Attrs().Statistics; q.Type() == "netem" && s != nil && s.Basic != nil && s.Queue != nil {
			return uint64(s.Basic.Packets), uint64(s.Queue.Drops), nil
		}
	}
	return 0, 0, fmt.Errorf("link %s has no netem", name)
}
