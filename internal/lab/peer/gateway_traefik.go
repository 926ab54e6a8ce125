package peer

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
)

// newTraefik returns the maker of Traefik with its defaults, which have neither an
// access log nor metrics: version 3 is the program traefik, version 2 traefik2.
func newTraefik(p suite.Path) rig.Maker {
	name := p.Peer.Name
	return &fileGateway{&gateway{Engine: rig.NewEngine(p),
		needs: []rig.Program{{Name: name, Source: "put Traefik's program into PATH under this name " +
			"(docs/guide/laboratory.md, Gateways)"}},
		command: func(p suite.Path) ([]string, map[string]string) {
			args := append([]string{name, "--global.checknewversion=false", "--global.sendanonymoususage=false",
				"--log.level=ERROR"}, traefikFlags(p)...)
			return args, map[string]string{program.RoutesFile: traefikRoutes(p, 0)}
		}}}
}

// traefikFlags returns the flags of Traefik and of Fairlead in its place.
func traefikFlags(p suite.Path) []string {
	at := addressesOf(p)
	return []string{
		"--entrypoints.web.address=" + at.Plain.String(), "--entrypoints.secure.address=" + at.TLS.String(),
		"--entrypoints.tools.address=" + at.Web.String(), "--entrypoints.tools-secure.address=" + at.SecureWeb.String(),
		"--providers.file.filename=/mnt/" + program.RoutesFile,
	}
}

// traefikRoutes returns the configuration for the file provider: a router for each
// entry point, others that get no requests, and after the first change one for it.
func traefikRoutes(p suite.Path, change int) string {
	at := addressesOf(p)
	var b strings.Builder
	fmt.Fprintf(&b, "http:\n  services:\n    lab: {loadBalancer: {servers: [{url: \"http://%s\"}]}}\n"+
		"    web: {loadBalancer: {servers: [{url: \"http://%[3]s\"}]}}\n  routers:\n"+
		"    web: {rule: \"Host(`%[2]s`)\", service: web, entryPoints: [tools]}\n"+
		"    web-secure: {rule: \"Host(`%[2]s`)\", service: web, entryPoints: [tools-secure], tls: {}}\n"+
		"    lab: {rule: \"Host(`%[2]s`)\", service: lab, entryPoints: [web]}\n"+
		"    lab-secure: {rule: \"Host(`%[2]s`)\", service: lab, entryPoints: [secure], tls: {}}\n", at.Upstream, load.Host,
		at.UpstreamWeb)
	for i := range p.Others {
		fmt.Fprintf(&b, "    other-%d: {rule: \"Host(`other-%[1]d.%s`)\", service: lab, entryPoints: [web]}\n", i, load.Host)
	}
	if change > 0 {
		fmt.Fprintf(&b, "    change: {rule: \"Host(`%s`)\", service: lab, entryPoints: [web]}\n", changedHost(change))
	}
	fmt.Fprintf(&b, "tls: {certificates: [{certFile: /mnt/%s, keyFile: /mnt/%s}]}\n", program.ChainFile,
		program.KeyFile)
	return b.String()
}

// fileGateway is a gateway with Traefik's file provider.
type fileGateway struct{ *gateway }

// Change implements rig.Changing. It replaces the file, as the provider's
// documentation advises.
func (g *fileGateway) Change(_ *rig.Rig, n int) error {
	dir := fmt.Sprintf("/proc/%d/root/mnt/", g.process.Cmd.Process.Pid)
	if err := os.WriteFile(dir+"next", []byte(traefikRoutes(g.Path, n)), 0o644); err != nil {
		return fmt.Errorf("change the routes: %w", err)
	}
	if err := os.Rename(dir+"next", dir+program.RoutesFile); err != nil {
		return fmt.Errorf("change the routes: %w", err)
	}
	return nil
}

// Changed implements rig.Changing.
func (g *fileGateway) Changed(r *rig.Rig, n int) (bool, error) {
	status, err := g.ask(r, changedHost(n))
	return status == http.StatusOK, err
}

// changedHost returns the host of the router that exists after the nth change.
func changedHost(n int) string { return fmt.Sprintf("change-%d.%s", n, load.Host) }
