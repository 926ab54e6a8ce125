package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/suite"
	"fairlead/internal/model"
	"fairlead/internal/paths"
	"fairlead/internal/plan"
)

// foreign is the part of a path that another program has built: programs that run as
// long as the path exists, a set-up that must be undone, or one that is removed with
// its host.
type foreign struct {
	processes []*child.Process
	// undo removes the set-up; nil if nothing has to be undone.
	undo func() error
}

// programs returns the external programs that a path needs.
func programs(p suite.Path) []string {
	switch p.Peer {
	case suite.DockerProxy:
		return []string{"docker-proxy"}
	case suite.HAProxy:
		return []string{"haproxy"}
	case suite.HandDNAT, suite.HandHops:
		return []string{"ip", "nft"}
	case suite.HandMade:
		return []string{"ip"}
	case suite.CNI:
		return cniPrograms(p)
	case suite.Slirp4netns:
		return []string{"slirp4netns", "unshare"}
	case suite.Pasta:
		return []string{"pasta", "unshare", "ip"}
	case suite.Docker, suite.DockerFairlead:
		return dockPrograms()
	}
	return nil
}

// Missing returns why the external program of a path cannot run on this host: it
// is not installed, or this binary cannot run in its containers. It returns "" if
// it can. The directory docker, if not empty, is searched first for a Docker
// engine's programs.
func Missing(p suite.Path, docker string) string {
	for _, tool := range programs(p) {
		if _, err := lookPath(tool, docker); err != nil {
			return tool + " is not installed (Debian: " + debianPackage[tool] + ")"
		}
	}
	return undockable(p, ownBinary)
}

// Unavailable returns why a path cannot be built on this host: the reason of
// Missing, or a missing kernel feature. It returns "" if building can be tried.
func Unavailable(p suite.Path, facts plan.Facts, docker string) string {
	if why := Missing(p, docker); why != "" {
		return why
	}
	var needs []plan.Feature
	d, ok := paths.Driver(p.Driver)
	switch {
	case ok:
		needs = append(needs, d.Needs()...)
	case !p.ByOthers():
		return "this version has no driver " + string(p.Driver)
	}
	if p.Filter == model.FilterOn {
		needs = append(needs, plan.FeatureBridgeFilter)
	}
	w, ok := paths.Mode(p.Via)
	switch {
	case ok:
		needs = append(needs, w.Needs()...)
	case p.Via != "":
		return "this version has no publish mode " + string(p.Via)
	}
	if missing := paths.Missing(facts, needs); missing != "" || p.Plane == "" {
		return missing
	}
	for _, v := range services(p) {
		if _, err := paths.ChoosePlane(facts, v); err != nil {
			return err.Error()
		}
	}
	return ""
}

// debianPackage is the Debian package of each peer's program.
var debianPackage = map[string]string{
	"docker-proxy": "docker.io", "ip": "iproute2", "nft": "nftables", "iptables": "iptables", "unshare": "util-linux",
	"slirp4netns": "slirp4netns", "pasta": "passt", "haproxy": "haproxy",
	"dockerd": "docker.io", "docker": "docker.io", "containerd": "containerd", "runc": "runc", "nsenter": "util-linux", "mount": "mount",
	"cni/bridge": cniPackage, "cni/ptp": cniPackage, "cni/macvlan": cniPackage, "cni/portmap": cniPackage, "cni/static": cniPackage,
}

// lookPath finds a program. It first searches the given directories, and after
// PATH the system directories that an ordinary user's PATH lacks and those where
// distributions install docker-proxy and CNI plugins.
func lookPath(tool string, first ...string) (string, error) {
	for _, dir := range first {
		if path, err := exec.LookPath(filepath.Join(dir, tool)); dir != "" && err == nil {
			return path, nil
		}
	}
	dirs := []string{"", "/usr/sbin/", "/sbin/", "/usr/libexec/docker/", "/usr/local/bin/"}
	if plugin, ok := strings.CutPrefix(tool, "cni/"); ok {
		tool, dirs = plugin, []string{"/usr/lib/cni/", "/usr/libexec/cni/", "/opt/cni/bin/"}
	}
	for _, dir := range dirs {
		if path, err := exec.LookPath(dir + tool); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

func startForeign(ctx context.Context, r *rig) (*foreign, error) {
	switch r.path.Peer {
	case suite.HandDNAT, suite.HandHops:
		return &foreign{}, byHand(ctx, r)
	case suite.HandMade:
		return &foreign{}, attachByHand(r)
	case suite.CNI:
		return attachByCNI(ctx, r)
	case suite.Slirp4netns:
		return startSlirp4netns(ctx, r)
	case suite.Pasta:
		return startPasta(ctx, r)
	case suite.Docker, suite.DockerFairlead:
		return startDocker(ctx, r)
	case suite.HAProxy:
		return startHAProxy(ctx, r)
	}
	return dockerProxies(ctx, r)
}

// dockerProxies starts one docker-proxy per port and protocol.
func dockerProxies(ctx context.Context, r *rig) (*foreign, error) {
	f := &foreign{}
	for port := LoadPort; port <= LastPort; port++ {
		for _, proto := range []string{"tcp", "udp"} {
			p, err := dockerProxy(ctx, r, proto, port)
			if err != nil {
				return f, errors.Join(fmt.Errorf("start docker-proxy: %w", err), f.close())
			}
			f.processes = append(f.processes, p)
		}
	}
	return f, nil
}

// dockerProxy starts one docker-proxy in the same manner as dockerd, and waits
// until it reports on descriptor 3 that it listens.
func dockerProxy(ctx context.Context, r *rig, proto string, port int) (*child.Process, error) {
	path, err := lookPath("docker-proxy")
	if err != nil {
		return nil, err
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.Command(path, "-proto", proto, "-host-ip", "0.0.0.0", "-host-port", fmt.Sprint(port),
		"-container-ip", workload.String(), "-container-port", fmt.Sprint(port))
	cmd.ExtraFiles = []*os.File{theirs}
	p, err := child.Start(ctx, cmd, r.place(r.world.Server(), proxyGroup))
	theirs.Close()
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(ready).ReadString('\n')
	if strings.TrimSpace(line) != "0" {
		return nil, errors.Join(fmt.Errorf("it printed %q", line), err, p.Kill())
	}
	return p, nil
}

func (f *foreign) pids() []int {
	var all []int
	for _, p := range f.processes {
		all = append(all, p.Cmd.Process.Pid)
	}
	return all
}

func (f *foreign) close() error {
	for _, p := range f.processes {
		_ = p.Kill() // its exit status says only that it was killed
	}
	if f.undo == nil {
		return nil
	}
	return f.undo()
}
