package runner

import (
	"fmt"

	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// handTunnel is the VXLAN link that is made by hand. vxlanHeaders is the size of
// the headers in bytes, which reduce the MTU: Ethernet, IPv4, UDP and VXLAN (RFC
// 7348).
const (
	handTunnel   = "vx0"
	vxlanHeaders = 14 + 20 + 8 + 8
)

// attachByHand runs the commands with which an administrator would attach the
// workload's sandbox, with the same result as the path's driver.
func attachByHand(r *rig) error {
	box, err := r.world.Sandbox(web)
	if err != nil {
		return err
	}
	box = otherProcess(box)
	var here, far string
	switch r.path.Driver {
	case model.DriverMacvlan:
		here = fmt.Sprintf("ip link add link %s name eth0 netns %s type macvlan mode bridge\n", topology.Wire, box) + handAddress(r, box)
	case model.DriverIPvlan:
		here = fmt.Sprintf("ip link add link %s name eth0 netns %s type ipvlan mode l2\n", topology.Wire, box) + handAddress(r, box)
	case model.DriverDevice:
		here = fmt.Sprintf("ip link set %s name eth0 netns %s\n", topology.SecondWire, box) + handAddress(r, box)
	case model.DriverVXLAN:
		mtu := r.path.MTU - vxlanHeaders
		filter := handFilter(r.path.Filter)
		here = filter + handOverlay("172.30.0.1", topology.ServerAddr4.String(), topology.ClientAddr4.String(), mtu) +
			handVeth(model.DriverBridge, handLink, box, workload, mtu)
		visiting, err := r.world.Sandbox(containerOf)
		if err != nil {
			return err
		}
		far = filter + handOverlay(clientRange.Addr().String(), topology.ClientAddr4.String(), topology.ServerAddr4.String(), mtu) +
			handVeth(model.DriverBridge, "vguest", otherProcess(visiting), visitor, mtu)
	}
	for _, s := range []struct {
		host   func(func() error) error
		script string
	}{{r.world.DoServer, here}, {r.world.DoClient, far}} {
		if _, err := shell(s.host, s.script); err != nil {
			return fmt.Errorf("set up by hand: %w", err)
		}
	}
	return nil
}

// handAddress returns the commands that add the address on the wire to the
// sandbox's link.
func handAddress(r *rig, box string) string {
	return fmt.Sprintf("nsenter --net=%s sh -ec 'ip addr add %s dev eth0; ip link set eth0 up'\n", box, topology.Subnet(r.workload()))
}

// handOverlay returns the commands for a host's part of an overlay: a bridge with
// the host's address, and the tunnel to the other host as its port.
func handOverlay(host, local, remote string, mtu int) string {
	return handBridge(host, mtu) +
		fmt.Sprintf("ip link add %s mtu %d type vxlan id %d dstport 4789 dev %s local %s remote %s\nip link set %s master br0 up\n",
			handTunnel, mtu, vni, topology.Wire, local, remote, handTunnel)
}
