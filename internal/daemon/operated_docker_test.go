package daemon_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"

	"fairlead/internal/model"
)

// dockerNetworks are networks that a Docker engine has created with Fairlead's driver,
// and the publish mode of each. Their subnets are 172.40.0.0/24 and so on.
var dockerNetworks = []struct {
	driver model.Driver
	via    model.Via
}{{model.DriverBridge, model.ViaEBPF}, {model.DriverRouted, model.ViaNAT}, {model.DriverMacvlan, model.ViaNAT}}

// endpointID is the ID of a container's current endpoint: 64 digits, as Docker's are.
// The first 12 are unique.
func (o *operated) endpointID(box int) string {
	return fmt.Sprintf("%012x%052x", box<<32+o.m.runs[box], 0)
}

func (o *operated) networkID(i int) string { return fmt.Sprintf("%012x%052x", 0xd0c0+i, i) }

// plugin calls the driver as a Docker engine does, and returns the answer, which may
// be an error.
func (o *operated) plugin(method string, request any) (answer struct {
	Err           string
	InterfaceName struct{ SrcName string }
	Gateway       string
	StaticRoutes  []struct{ Destination, NextHop string }
}) {
	o.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		o.Fatal(err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", o.Docker)
		}}}
	response, err := client.Post("http://docker/NetworkDriver."+method, "application/json", bytes.NewReader(body))
	if err != nil {
		o.Fatalf("%s: %v", method, err)
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		o.Fatalf("%s: %v", method, err)
	}
	return answer
}

type object = map[string]any

// createDockerNetworks creates all of them. Docker creates each once.
func (o *operated) createDockerNetworks() {
	o.Helper()
	for i, n := range dockerNetworks {
		options := object{"driver": n.driver, "via": n.via}
		if n.driver == model.DriverMacvlan {
			options["parent"] = "up0"
		}
		answer := o.plugin("CreateNetwork", object{"NetworkID": o.networkID(i),
			"Options": object{"com.docker.network.generic": options},
			"IPv4Data": []object{{"Pool": fmt.Sprintf("172.%d.0.0/24", 40+i),
				"Gateway": fmt.Sprintf("172.%d.0.1/24", 40+i)}}})
		if answer.Err != "" {
			o.Fatalf("create network %d: %s", i, answer.Err)
		}
	}
}

func (o *operated) removeDockerNetworks() {
	o.Helper()
	for i := range dockerNetworks {
		for range 2 {
			if answer := o.plugin("DeleteNetwork", object{"NetworkID": o.networkID(i)}); answer.Err != "" {
				o.Errorf("delete network %d: %s", i, answer.Err)
			}
		}
	}
}

// runContainer does what Docker does for `docker run`, or stops the container if it
// runs.
func (o *operated) runContainer() {
	o.Helper()
	i := containers[o.random.IntN(len(containers))]
	if _, running := o.m.externals[i]; running {
		o.stopContainer(i)
		return
	}
	var ports []uint16
	for range o.random.IntN(3) {
		port := 8000 + uint16(o.random.IntN(operatedPorts))
		if !slices.Contains(ports, port) {
			ports = append(ports, port)
		}
	}
	o.m.runs[i]++
	o.run(i, externalContainer{o.m.runs[i], o.random.IntN(len(dockerNetworks)), ports})
}

// run starts a container on the network, with its ports. If a port is taken, it
// removes the endpoint again.
func (o *operated) run(i int, g externalContainer) {
	o.Helper()
	o.m.runs[i] = g.run
	id, network := o.endpointID(i), o.networkID(g.network)
	address := fmt.Sprintf("172.%d.0.%d", 40+g.network, 10+i)
	var bindings []object
	taken := false
	for _, port := range g.ports {
		bindings = append(bindings, object{"Proto": 6, "Port": 80, "HostPort": port, "HostPortEnd": port})
		_, is := o.m.published[port]
		taken = taken || is
	}
	options := object{"com.docker.network.portmap": bindings}
	at := object{"NetworkID": network, "EndpointID": id, "Options": options}
	created := maps.Clone(at)
	created["Interface"] = object{"Address": address + "/24"}
	if answer := o.plugin("CreateEndpoint", created); answer.Err != "" {
		o.Fatalf("create endpoint of container %d: %s", i, answer.Err)
	}
	joined := maps.Clone(at)
	joined["SandboxKey"] = "/proc/" + o.watched[i].pid + "/ns/net"
	answer := o.plugin("Join", joined)
	if answer.Err != "" {
		o.Fatalf("join container %d: %s", i, answer.Err)
	}
	programmed := o.plugin("ProgramExternalConnectivity", at)
	if (programmed.Err != "") != taken {
		o.Errorf("publish %v of container %d, taken: %v: %q", g.ports, i, taken, programmed.Err)
	}
	if taken {
		o.removeEndpoint(i, g)
		return
	}
	o.w.sh(fmt.Sprintf("ip link set %s netns %s", answer.InterfaceName.SrcName, o.watched[i].pid))
	o.watched[i].sh(o, fmt.Sprintf("ip link set %s name eth0; ip addr add %s/24 dev eth0; ip link set eth0 up",
		answer.InterfaceName.SrcName, address))
	if answer.Gateway != "" {
		o.watched[i].sh(o, "ip route add default via "+answer.Gateway)
	}
	o.m.externals[i] = g
	for _, port := range g.ports {
		o.m.published[port] = mappings{attachment{i, dockerNetwork(g.network)}, dockerNetworks[g.network].via}
	}
}

// dockerNetwork returns the daemon's name of a Docker network.
func dockerNetwork(i int) string { return fmt.Sprintf("docker-%012x", 0xd0c0+i) }

// stopContainer does what Docker does for `docker stop`. It does so twice, as a Docker
// engine that was killed in between does.
func (o *operated) stopContainer(i int) {
	o.Helper()
	g := o.m.externals[i]
	o.removeEndpoint(i, g)
	o.removeEndpoint(i, g)
	delete(o.m.externals, i)
	maps.DeleteFunc(o.m.published, func(_ uint16, l mappings) bool { return l.at.watchedSandbox == i })
}

// removeEndpoint removes a container's endpoint. An engine may omit any of the first
// steps.
func (o *operated) removeEndpoint(i int, g externalContainer) {
	o.Helper()
	for _, method := range []string{"RevokeExternalConnectivity", "Leave", "DeleteEndpoint"} {
		if method != "DeleteEndpoint" && o.random.IntN(4) == 0 {
			continue
		}
		if answer := o.plugin(method, object{"NetworkID": o.networkID(g.network),
			"EndpointID": o.endpointID(i)}); answer.Err != "" {
			o.Errorf("%s of container %d: %s", method, i, answer.Err)
		}
	}
}
