package runner

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

	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
	"fairlead/internal/model"
)

// cniPackage is Debian's package of the reference plugins.
const cniPackage = "containernetworking-plugins"

// cniVersion is the version of the CNI specification in use: the newest that the
// plugins of Debian 12 support.
const cniVersion = "1.0.0"

// cniCall is one plugin with its configuration, without the keys that every
// configuration has.
type cniCall struct {
	plugin string
	conf   map[string]any
}

// cniChain returns what a container engine would configure for the path. The
// addresses are static, so nothing is written outside the namespaces.
func cniChain(r *rig) []cniCall {
	address := map[string]any{"address": netip.PrefixFrom(workload, subnet.Bits()).String(), "gateway": "172.30.0.1"}
	ipam := map[string]any{"type": "static", "addresses": []any{address}, "routes": []any{map[string]any{"dst": "0.0.0.0/0"}}}
	switch r.path.Driver {
	case model.DriverBridge:
		return []cniCall{
			{"bridge", map[string]any{"bridge": "cni0", "isGateway": true, "mtu": r.path.MTU, "ipam": ipam}},
			{"portmap", map[string]any{"runtimeConfig": map[string]any{"portMappings": cniPorts()}}},
		}
	case model.DriverRouted:
		return []cniCall{{"ptp", map[string]any{"mtu": r.path.MTU, "ipam": ipam}}}
	}
	address = map[string]any{"address": topology.Subnet(wireWorkload).String()}
	ipam = map[string]any{"type": "static", "addresses": []any{address}}
	return []cniCall{{"macvlan", map[string]any{"master": topology.Wire, "mode": "bridge", "mtu": r.path.MTU, "ipam": ipam}}}
}

func cniPorts() []any {
	var all []any
	for port := LoadPort; port <= LastPort; port++ {
		for _, proto := range []string{"tcp", "udp"} {
			all = append(all, map[string]any{"hostPort": port, "containerPort": port, "protocol": proto})
		}
	}
	return all
}

// cniPrograms returns the plugins for the path, including the one that assigns its
// address and the one that portmap calls.
func cniPrograms(p suite.Path) []string {
	all := []string{"cni/static"}
	for _, c := range cniChain(&rig{path: p}) {
		all = append(all, "cni/"+c.plugin)
		if c.plugin == "portmap" {
			all = append(all, "iptables")
		}
	}
	return all
}

// attachByCNI adds the workload's sandbox to the network according to the
// specification: each plugin gets the result of the one before, and they are
// undone in reverse order.
func attachByCNI(ctx context.Context, r *rig) (*foreign, error) {
	box, err := r.world.Sandbox(web)
	if err != nil {
		return nil, err
	}
	box = otherProcess(box)
	chain := cniChain(r)
	var result json.RawMessage
	f := &foreign{undo: func() error {
		for _, c := range slices.Backward(chain) {
			// The rig's own context may have ended.
			if _, err := c.run(context.WithoutCancel(ctx), r.world, "DEL", box, result); err != nil {
				return err
			}
		}
		return nil
	}}
	for _, c := range chain {
		out, err := c.run(ctx, r.world, "ADD", box, result)
		if err != nil {
			return f, err
		}
		result = out
	}
	return f, nil
}

// run calls the plugin on the server host and returns its result.
func (c cniCall) run(ctx context.Context, w *topology.World, command, box string, before json.RawMessage) (json.RawMessage, error) {
	path, err := lookPath("cni/" + c.plugin)
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
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+web, "CNI_NETNS="+box,
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
