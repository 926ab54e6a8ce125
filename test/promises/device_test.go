package promises_test

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
	"fairlead/test/shell"
)

// card is the name of another network device of the server host. Its peer is on the client host,
// like the wire's.
const card = "card0"

// movedIn returns the state of a lab in which web has that device. Its neighbour has no link,
// because a device can be in only one sandbox.
func movedIn(t *testing.T, w *topology.World) model.State {
	t.Helper()
	server := fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), w.Server().Netns.Fd())
	// The client host answers from the address to which the request was sent.
	shell.Run(t, w.DoClient, fmt.Sprintf("set -e; ip link add lan0 type veth peer name "+card+" netns "+server+
		"; ip link set lan0 up;"+
		" ip addr add 203.0.113.1/24 dev lan0; ip addr add 2001:db8:2::1/64 dev lan0 nodad;"+
		" ip route add 203.0.113.2 dev lan0 src %s; ip -6 route add 2001:db8:2::2 dev lan0 src %s",
		topology.ClientAddr4, topology.ClientAddr6))
	box, err := w.Sandbox(web)
	if err == nil {
		_, err = w.Sandbox(peer)
	}
	if err != nil {
		t.Fatal(err)
	}
	return model.State{Networks: []model.Network{{Name: "net", Driver: model.DriverDevice, Parent: card}},
		Endpoints: []model.Endpoint{{Name: web, Network: "net", Sandbox: box,
			Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.2/24"),
				netip.MustParsePrefix("2001:db8:2::2/64")},
			Gateways: []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8:2::1")}}}}
}
