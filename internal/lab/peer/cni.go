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
	"fairlead/internal/lab/result"
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

// chain returns what a container engine would configure for a sandbox with that
// address; ports are published to the workload. The addresses are static, so nothing is
// written outside the namespaces.
func (m *cni) chain(addr netip.Addr) []cniCall {
	at := m.Addresses()
	address := map[string]any{"address": netip.PrefixFrom(addr, at.Subnet.Bits()).String(),
		"gateway": at.Gateway.String()}
	ipam := map[string]any{"type": "static", "addresses": []any{address},
		"routes": []any{map[string]any{"dst": netip.PrefixFrom(at.Unspecified, 0).String()}}}
	switch m.Path.Driver {
	case model.DriverBridge:
		bridge := cniCall{"bridge", map[string]any{"bridge": "cni0", "isGateway": true, "ipMasq": true,
			"mtu": m.Path.MTU, "ipam": ipam}}
		if addr != at.Workload {
			return []cniCall{bridge}
		}
		published := map[string]any{"portMappings": cniPorts()}
		return []cniCall{bridge, {"portmap", map[string]any{"runtimeConfig": published}}}
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
	for _, c := range m.chain(m.Addresses().Workload) {
		all = append(all, rig.Program{Name: "cni/" + c.plugin, Package: cniPackage})
		if c.plugin == "portmap" {
			all = append(all, rig.Program{Name: "iptables", Package: "iptables"})
		}
	}
	return rig.Needs{Programs: all}
}

// Start implements rig.Maker.
func (m *cni) Start(ctx context.Context, r *rig.Rig) error {
	if err := m.add(ctx, r, rig.Workload, m.Addresses().Workload); err != nil || !r.Wants(result.Peer) {
		return err
	}
	return m.add(ctx, r, rig.Neighbor, m.Addresses().Neighbor)
}

// add adds a sandbox to the network according to the specification: each plugin gets the
// result of the one before, and they are undone in reverse order.
func (m *cni) add(ctx context.Context, r *rig.Rig, name string, addr netip.Addr) error {
	box, err := r.World.Sandbox(name)
	if err != nil {
		return err
	}
	at := cniSandbox{name, program.ForOthers(box)}
	chain := m.chain(addr)
	var before json.RawMessage
	r.Undo(func() error {
		for _, c := range slices.Backward(chain) {
			// The rig's own context may have ended.
			if _, err := c.run(context.WithoutCancel(ctx), r.World, "DEL", at, before); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range chain {
		out, err := c.run(ctx, r.World, "ADD", at, before)
		if err != nil {
			return err
		}
		before = out
	}
	return nil
}

// cniSandbox is the name of a sandbox, and the path of its network namespace.
type cniSandbox struct{ name, path string }

// run calls the plugin on the server host and returns its result.
func (c cniCall) run(
	ctx context.Context, w *topology.World, command string, box cniSandbox, before json.RawMessage,
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
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+box.name, "CNI_NETNS="+box.path,
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
