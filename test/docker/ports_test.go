package docker_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"fairlead/internal/frontend/admin"
	"fairlead/internal/model"
)

// publishes publishes ports in every form that Docker supports.
func (h *host) publishes() {
	before := h.inventory()
	h.docker("network", "create", "-d", "fairlead", "--subnet", "172.30.0.0/24", "net")

	h.serves("many", "-p", "20000-20999:1000-1999/udp", "-p", "127.0.0.1:9000:80", "-p", "9100-9110:81")
	if all := h.published("many"); len(all) != 3 || all[2].HostPorts.Len() != 1000 {
		h.Errorf("a range of 1000 ports became %d publishes: %v", len(all)-2, all)
	}
	h.asks("", "tcp", "127.0.0.1:9000")
	h.refused(lan, "tcp", hostAddr+":9000")
	one := slices.IndexFunc(h.published("many"), func(p model.Publish) bool { return p.Ports == model.Port(81) })
	if p := h.published("many")[one]; p.HostPorts.First < 9100 || p.HostPorts.Last > 9110 || p.HostPorts.Len() != 1 {
		h.Errorf("want one port of 9100-9110, got %s", p.HostPorts)
	}
	h.fails("port is already allocated: container many has it", "run", "--rm", "--network", "net", "-p", "20500:53/udp",
		"program", "serve", "tcp:80")
	h.serves("second", "-p", "9100-9110:80", "-p", "80")
	h.fails("sctp", "run", "--rm", "--network", "net", "-p", "7000:7000/sctp", "program", "serve", "tcp:80")

	h.serves("any", "-P", "--expose", "80", "--expose", "1000-1099/udp")
	for _, p := range h.published("any") {
		if p.Proto == model.TCP {
			h.asks(lan, "tcp", fmt.Sprintf("%s:%d", hostAddr, p.HostPorts.First))
		} else if p.HostPorts.Len() != 100 {
			h.Errorf("a range of 100 ports is published as %s", p)
		}
	}
	h.sh(h.dir + "/program serve tcp:6000 > /dev/null 2>&1 & echo $! > /run/taken")
	h.asks("", "tcp", "127.0.0.1:6000")
	h.fails("port is already allocated: ", "run", "--rm", "--network", "net", "-p", "6000:80", "program", "serve",
		"tcp:80")
	h.sh("kill $(cat /run/taken)")

	h.fails("cannot assign requested address", "run", "--rm", "--network", "net", "-p", "203.0.113.9:6001:80",
		"program", "serve", "tcp:80")
	h.sh("echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind")
	h.serves("later", "-p", "203.0.113.9:6001:80")
	h.sh("echo 0 > /proc/sys/net/ipv4/ip_nonlocal_bind")
	for _, command := range []string{"ports", "stats"} {
		if out := h.sh(h.dir + "/fairlead " + command); strings.Contains(out, "docker-") ||
			!strings.Contains(out, "second") {
			h.Errorf("fairlead %s does not name the container:\n%s", command, out)
		}
	}
	h.docker("run", "-d", "--name", "plain", "--network", "name=net,driver-opt=via=proxy", "-p", "6002:80", "program",
		"serve", "tcp:80")
	if out := h.sh("ss -Hltnp sport = :6002"); !strings.Contains(out, `"fairlead-proxy"`) {
		h.Errorf("ss shows another name for the proxy: %s", out)
	}
	h.docker("rm", "-f", "many", "second", "any", "later", "plain")
	h.docker("network", "rm", "net")
	h.unchanged(before)
}

// serves runs a container that serves TCP port 80.
func (h *host) serves(name string, options ...string) {
	h.Helper()
	args := append([]string{"run", "-d", "--name", name, "--network", "net"}, options...)
	h.docker(append(args, "program", "serve", "tcp:80")...)
}

// published returns the publishes of a container on one network, sorted by protocol and port.
func (h *host) published(name string) []model.Publish {
	h.Helper()
	id := h.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{.EndpointID}}{{end}}", name)
	var all admin.Attachments
	if err := json.Unmarshal([]byte(h.sh(h.dir+"/fairlead ls -o json")), &all); err != nil {
		h.Fatal(err)
	}
	for _, a := range all.Attachments {
		if strings.HasSuffix(a.Name, id[:12]) {
			var publishes []model.Publish
			for _, p := range a.Publishes {
				publishes = append(publishes, p.Publish)
			}
			return publishes
		}
	}
	h.Fatalf("%s is not attached", name)
	return nil
}

// fails runs the CLI, which must fail with an error that contains why.
func (h *host) fails(why string, args ...string) {
	h.Helper()
	if out, err := h.Run(h.Context(), args...); err == nil || !strings.Contains(err.Error(), why) {
		h.Errorf("docker %s: %q, %v: want an error with %q", strings.Join(args, " "), out, err, why)
	}
}

// refused fails the test if a request is answered.
func (h *host) refused(in, network, addr string) {
	h.Helper()
	out, err := h.Command(h.Context(), "sh", "-ec", in+" timeout 1 "+h.dir+"/program ask "+network+" "+
		addr).CombinedOutput()
	if err == nil {
		h.Errorf("%s: %s %s must not answer, but answers %s", in, network, addr, out)
	}
}
