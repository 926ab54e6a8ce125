package facts

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"fairlead/internal/kernel/sockdiag"
	"fairlead/internal/model"
)

// Of adds the details of a socket's process from /proc. The socket may be of any network
// namespace.
func Of(l sockdiag.Listener) Listener {
	out := Listener{Listener: l}
	if l.Process.PID == 0 {
		return out
	}
	dir := fmt.Sprintf("/proc/%d/", l.Process.PID)
	if text, err := os.ReadFile(dir + "cmdline"); err == nil {
		out.Args = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	if text, err := os.ReadFile(dir + "cgroup"); err == nil {
		for line := range strings.Lines(string(text)) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				out.Cgroup = path
			}
		}
	}
	if text, err := os.ReadFile(dir + "statm"); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseInt(fields[1], 10, 64)
			out.Memory = pages * int64(os.Getpagesize())
		}
	}
	if out.Process.Command == "exe" && len(out.Args) > 0 { // Fairlead's children run /proc/self/exe
		out.Process.Command = out.Args[0]
	}
	return out
}

// DockerProxy is the port mapping of one of Docker's user-space proxies.
type DockerProxy struct {
	Proto model.Proto
	Host  netip.AddrPort
	To    netip.AddrPort
}

// DockerProxy parses the process's arguments. It returns false if the process is
// not such a proxy.
func (l Listener) DockerProxy() (DockerProxy, bool) {
	if l.Process.Command != "docker-proxy" && (len(l.Args) == 0 || !strings.HasSuffix(l.Args[0], "/docker-proxy")) {
		return DockerProxy{}, false
	}
	value := map[string]string{}
	for i := 0; i+1 < len(l.Args); i++ {
		if name, ok := strings.CutPrefix(l.Args[i], "-"); ok {
			value[strings.TrimPrefix(name, "-")] = l.Args[i+1]
		}
	}
	p := DockerProxy{Proto: model.Proto(value["proto"])}
	p.Host = addrPort(value["host-ip"], value["host-port"])
	p.To = addrPort(value["container-ip"], value["container-port"])
	return p, p.To.IsValid()
}

func addrPort(addr, port string) netip.AddrPort {
	a, err := netip.ParseAddr(addr)
	n, errPort := strconv.ParseUint(port, 10, 16)
	if err != nil || errPort != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(n))
}

// OurProxy reports whether the process is Fairlead's user-space proxy. It also
// reserves the ports of the other publish modes.
func (l Listener) OurProxy() bool { return len(l.Args) > 0 && l.Args[0] == "fairlead-proxy" }

// Dockerd reports whether the process is Docker's daemon. Without a user-space
// proxy, it reserves the ports that its NAT rules translate.
func (l Listener) Dockerd() bool { return l.Process.Command == "dockerd" }
