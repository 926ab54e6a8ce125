package peer

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// cniPackage is Debian's package of the reference plugins.
const cniPackage = "containernetworking-plugins"

// cniVersion is the version of the CNI specification in use: the newest that the
// plugins of Debian 12 support.
const cniVersion = "1.0.0"

// cni attaches the sandbox with the reference plugins of the Container Network
// Interface.
type cni struct{ rig.Base }

func newCNI(p suite.Path) rig.Maker { return &cni{rig.Base{Path: p}} }

// cniCall is one plugin with its configuration, without the keys that every
// configuration has.
type cniCall struct {
	plugin string
	conf   map[string]any
}

// chain returns what a container engine would configure for the path. The
// addresses are static, so nothing is written outside the namespaces.
func (m *cni) chain() []cniCall {
	at := m.Addresses()
	address := map[string]any{"address": netip.PrefixFrom(at.Workload, at.Subnet.Bits()).String(),
		"gateway": at.Gateway.String()}
	ipam := map[string]any{"type": "static", "addresses": []any{address},
		"routes": []any{map[string]any{"dst": netip.PrefixFrom(at.Unspecified, 0).String()}}}
	switch m.Path.Driver {
	case model.DriverBridge:
		return []cniCall{
			{"bridge", map[string]any{"bridge": "cni0", "isGateway": true, "mtu": m.Path.MTU, "ipam": ipam}},
			{"portmap", map[string]any{"runtimeConfig": map[string]any{"portMappings": cniPorts()}}},
		}
	case model.DriverRouted:
		return []cniCall{{"ptp", map[string]any{"mtu": m.Path.MTU, "ipam": ipam}}}
	}
	address = map[string]any{"address": topology.Subnet(at.WireWorkload).String()}
	ipam = map[string]any{"type": "static", "addresses": []any{address}}
	conf := map[string]any{"master": topology.Wire, "mode": "bridge", "mtu": m.Path.MTU, "ipam": ipam}
	return []cniCall{{"macvlan", conf}}
}

func cniPorts() []any {
	var all []any
	for port := rig.LoadPort; port <= rig.LastPort; port++ {
		for _, proto := range []string{"tcp", "udp"} {
			all = append(all, map[string]any{"hostPort": port, "containerPort": port, "protocol": proto})
		}
	}
	return all
}

// Needs implements rig.Maker: the plugins, including the one that assigns the
// address and the program that portmap calls.
func (m *cni) Needs() rig.Needs {
	all := []rig.Program{{Name: "cni/static", Package: cniPackage}}
	for _, c := range m.chain() {
		all = append(all, rig.Program{Name: "cni/" + c.plugin, Package: cniPackage})
		if c.plugin == "portmap" {
			all = append(all, rig.Program{Name: "iptables", Package: "iptables"})
		}
	}
	return rig.Needs{Programs: all}
}

// Start implements rig.Maker. It adds the workload's sandbox to the network
// according to the specification: each plugin gets the result of the one before,
// and they are undone in reverse order.
func (m *cni) Start(ctx context.Context, r *rig.Rig) error {
	box, err := r.World.Sandbox(rig.Workload)
	if err != nil {
		return err
	}
	box = program.ForOthers(box)
	chain := m.chain()
	var result json.RawMessage
	r.Undo(func() error {
		for _, c := range slices.Backward(chain) {
			// The rig's own context may have ended.
			if _, err := c.run(context.WithoutCancel(ctx), r.World, "DEL", box, result); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range chain {
		out, err := c.run(ctx, r.World, "ADD", box, result)
		if err != nil {
			return err
		}
		result = out
	}
	return nil
}

// run calls the plugin on the server host and returns its result.
func (c cniCall) run(
	ctx context.Context, w *topology.World, command, box string, before json.RawMessage,
) (json.RawMessage, error) {
	path, err := program.Find("cni/" + c.plugin)
	if err != nil {
		return nil, err
	}
	c.conf["cniVersion"], c.conf["name"], c.conf["type"] = cniVersion, "lab", c.plugin
	if before != nil {
		c.conf["prevResult"] = before
	}
	conf, err := json.Marshal(c.conf)
	if err != nil {
		return nil, err
	}
	var out []byte
	err = w.DoServer(func() (err error) {
		cmd := exec.CommandContext(ctx, path)
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+rig.Workload, "CNI_NETNS="+box,
			"CNI_IFNAME=eth0", "CNI_PATH="+filepath.Dir(path))
		cmd.Stdin = bytes.NewReader(conf)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s by CNI plugin %s: %w: %s", command, c.plugin, err, out)
	}
	return out, nil
}
