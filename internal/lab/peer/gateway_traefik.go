package peer

import (
	"fmt"
	"strings"

	"fairlead/internal/lab/load"
	"fairlead/internal/lab/rig"
	"fairlead/internal/lab/suite"
	"fairlead/internal/lab/topology"
)

// newTraefik returns the maker of Traefik with its defaults, which have neither an
// access log nor metrics: version 3 is the program traefik, version 2 traefik2.
func newTraefik(p suite.Path) rig.Maker {
	name := p.Peer.Name
	return &gateway{Engine: rig.NewEngine(p),
		needs: []rig.Program{{Name: name, Source: "put Traefik's program into PATH under this name " +
			"(docs/guide/laboratory.md, Gateways)"}},
		command: func(p suite.Path) ([]string, map[string]string) {
			args := append([]string{name, "--global.checknewversion=false", "--global.sendanonymoususage=false",
				"--log.level=ERROR"}, traefikFlags()...)
			return args, map[string]string{routesFile: traefikRoutes(p.Others)}
		}}
}

// routesFile is the file of Traefik's file provider in /mnt.
const routesFile = "routes.yml"

// traefikFlags returns the flags of Traefik and of Fairlead in its place.
func traefikFlags() []string {
	return []string{
		fmt.Sprintf("--entrypoints.web.address=%s:%d", topology.ServerAddr4, rig.LoadPort),
		fmt.Sprintf("--entrypoints.secure.address=%s:%d", topology.ServerAddr4, rig.TLSPort),
		"--providers.file.filename=/mnt/" + routesFile,
	}
}

// traefikRoutes returns the configuration for the file provider: a router for each
// entry point, and others that get no requests.
func traefikRoutes(others int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "http:\n  services:\n    lab: {loadBalancer: {servers: [{url: \"http://%s\"}]}}\n  routers:\n"+
		"    lab: {rule: \"Host(`%[2]s`)\", service: lab, entryPoints: [web]}\n"+
		"    lab-secure: {rule: \"Host(`%[2]s`)\", service: lab, entryPoints: [secure], tls: {}}\n", upstream, load.Host)
	for i := range others {
		fmt.Fprintf(&b, "    other-%d: {rule: \"Host(`other-%[1]d.%s`)\", service: lab, entryPoints: [web]}\n", i, load.Host)
	}
	fmt.Fprintf(&b, "tls: {certificates: [{certFile: /mnt/%s, keyFile: /mnt/%s}]}\n", chainFile, keyFile)
	return b.String()
}
