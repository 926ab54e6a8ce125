package suite

import (
	"fmt"
	"time"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/result"
	"fairlead/internal/model"
)

// attachPaths returns the paths that attach a sandbox to the wire: Fairlead's, and the
// same made by other programs. These are named after the program.
func attachPaths() []Path {
	return []Path{
		{Name: "macvlan", About: "a sandbox on a macvlan link of the wire, at an address of the wire's own subnet",
			Driver: model.DriverMacvlan, Direct: true},
		{Name: "ipvlan", About: "a sandbox on an ipvlan link of the wire, at an address of the wire's own subnet",
			Driver: model.DriverIPvlan, Direct: true},
		{Name: "vxlan", About: "a sandbox on a VXLAN overlay, br_netfilter off, the client in one on the other host",
			Driver: model.DriverVXLAN, Filter: model.FilterOff, Direct: true},
		{Name: "vxlan-2", About: "vxlan over two wires, one for each direction", Driver: model.DriverVXLAN,
			Filter: model.FilterOff, Wires: 2, Direct: true},
		{Name: "device", About: "a sandbox that has one end of a second wire", Driver: model.DriverDevice,
			Direct: true},
		{Name: "hand-macvlan", About: "macvlan, made with ip by hand", Driver: model.DriverMacvlan, Peer: HandMade,
			Direct: true},
		{Name: "hand-ipvlan", About: "ipvlan, made with ip by hand", Driver: model.DriverIPvlan, Peer: HandMade,
			Direct: true},
		{Name: "hand-vxlan", About: "vxlan, made with ip and static entries on both hosts by hand", Driver: model.DriverVXLAN,
			Filter: model.FilterOff, Peer: HandMade, Direct: true},
		{Name: "hand-device", About: "device, made with ip by hand", Driver: model.DriverDevice, Peer: HandMade,
			Direct: true},
		{Name: "cni-bridge", About: "a sandbox attached by the CNI plugin bridge, its port published by portmap",
			Driver: model.DriverBridge, Peer: CNI},
		{Name: "cni-ptp", About: "a sandbox attached by the CNI plugin ptp, at its own address",
			Driver: model.DriverRouted, Peer: CNI, Direct: true},
		{Name: "cni-macvlan",
			About:  "a sandbox attached by the CNI plugin macvlan, at an address of the wire's own subnet",
			Driver: model.DriverMacvlan, Peer: CNI, Direct: true},
		{Name: "slirp4netns", About: "a sandbox on a tap device served by slirp4netns, its port forwarded",
			Driver: model.DriverNone, Peer: Slirp4netns},
		{Name: "pasta", About: "a sandbox on a tap device served by pasta, its port forwarded",
			Driver: model.DriverNone, Peer: Pasta},
	}
}

func attach() Suite {
	const source = "fosdem-ipoib"
	// iperf -d reports one figure per direction; the lab reports their sum.
	figure := func(source, path string, there, back float64, seconds int) result.Published {
		return result.Published{Source: source, Path: path, Client: result.Remote, Workload: bulkBothOne.Name,
			Metric: result.Throughput, Value: (there + back) * 1e9,
			Note: fmt.Sprintf("%g and %g Gbit/s by iperf -d, %d s; added", there, back, seconds)}
	}
	return Suite{
		Name:     "attach",
		Question: "How much does each driver or tool that attaches a sandbox cost over the wire?",
		Baseline: "host",
		// Each Fairlead path is followed by the same path made by others.
		Paths: []string{
			"host", "bridge", "hand-dnat", "cni-bridge", "routed", "hop-veth", "cni-ptp",
			"macvlan", "hand-macvlan", "cni-macvlan", "ipvlan", "hand-ipvlan",
			"vxlan", "hand-vxlan", "vxlan-2", "device", "hand-device", "slirp4netns", "pasta",
		},
		Clients:   []result.Client{result.Remote},
		Workloads: []Workload{bulkOne, bulkTwo, bulkBothOne, rr},
		Rounds:    12, Duration: time.Second, Warmup: 200 * time.Millisecond,
		Published: []result.Published{
			figure(source, "host", 6.37, 5.69, 120), figure(source, "device", 7.93, 5.54, 120),
			figure(source, "vxlan", 0.969, 0.983, 120), figure(source, "hand-vxlan", 2.28, 1.83, 10),
			figure(source+" on Ethernet", "vxlan", 0.625, 0.747, 120),
		},
	}
}

var (
	bulkTwo     = Workload{Name: "tcp-bulk-2", Spec: load.Spec{Workload: load.TCPBulk, Streams: 2}}
	bulkBothOne = Workload{Name: "tcp-bulk-both-1", Spec: load.Spec{Workload: load.TCPBulk, Direction: load.Both}}
)
