package site

import (
	"fmt"
	"net/netip"
	"strings"

	"fairlead/internal/child"
	"fairlead/internal/lab/failover"
	"fairlead/internal/lab/program"
	"fairlead/internal/lab/suite"
)

// gateway is a program that terminates TLS and forwards requests to web servers.
type gateway struct {
	// command returns the program with its arguments, and its configuration files.
	command func(upstreams []netip.AddrPort) (args []string, files map[string]string)
	// environment has further variables.
	environment []string
}

// gateways are the gateways by the names of their peers. All have their defaults and
// no access log.
var gateways = map[string]gateway{
	suite.FairleadGateway.Name: {
		command: func(upstreams []netip.AddrPort) ([]string, map[string]string) {
			return append([]string{"fairlead", "gateway", "traefik", "--"}, traefikFlags()...),
				map[string]string{program.RoutesFile: traefikRoutes(upstreams)}
		},
		environment: []string{child.Role + "=" + failover.CommandRole},
	},
	suite.Traefik.Name: {
		command: func(upstreams []netip.AddrPort) ([]string, map[string]string) {
			return append([]string{"traefik", "--global.checknewversion=false", "--global.sendanonymoususage=false",
					"--log.level=ERROR"}, traefikFlags()...),
				map[string]string{program.RoutesFile: traefikRoutes(upstreams)}
		},
	},
	suite.Nginx.Name: {
		command: func(upstreams []netip.AddrPort) ([]string, map[string]string) {
			return []string{"nginx", "-p", "/mnt", "-e", "stderr", "-c", "/mnt/nginx.conf"},
				map[string]string{"nginx.conf": nginxConfig(upstreams)}
		},
	},
}

// traefikFlags returns the flags of Traefik and of Fairlead in its place.
func traefikFlags() []string {
	return []string{fmt.Sprintf("--entrypoints.secure.address=:%d", securePort),
		"--providers.file.filename=/mnt/" + program.RoutesFile}
}

// traefikRoutes returns the configuration for the file provider.
func traefikRoutes(upstreams []netip.AddrPort) string {
	var servers []string
	for _, at := range upstreams {
		servers = append(servers, fmt.Sprintf("{url: \"http://%s\"}", at))
	}
	return fmt.Sprintf("http:\n  services:\n    site: {loadBalancer: {servers: [%s]}}\n  routers:\n"+
		"    site: {rule: \"Host(`%s`)\", service: site, entryPoints: [secure], tls: {}}\n"+
		"tls: {certificates: [{certFile: /mnt/%s, keyFile: /mnt/%s}]}\n", strings.Join(servers, ", "), Host,
		program.ChainFile, program.KeyFile)
}

// nginxConfig returns the configuration of nginx with one worker per CPU. As its
// documentation advises, it keeps connections to the servers.
func nginxConfig(upstreams []netip.AddrPort) string {
	var servers strings.Builder
	for _, at := range upstreams {
		fmt.Fprintf(&servers, "server %s; ", at)
	}
	return fmt.Sprintf(`daemon off; user root; worker_processes auto; worker_rlimit_nofile 20000; pid /mnt/nginx.pid;
error_log stderr crit;
events { worker_connections 8192; }
http {
	access_log off; server_tokens off;
	proxy_max_temp_file_size 0;
	ssl_certificate /mnt/%[1]s; ssl_certificate_key /mnt/%[2]s; ssl_protocols TLSv1.2 TLSv1.3;
	upstream site { %[3]s keepalive 64; }
	proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $host;
	proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
	server {
		listen %[4]d ssl http2 backlog=4096; listen [::]:%[4]d ssl http2 backlog=4096; server_name %[5]s;
		location / { proxy_pass http://site; }
	}
}
`, program.ChainFile, program.KeyFile, servers.String(), securePort, Host)
}
