package importer

import (
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model"
)

// checking is a check while it is read.
type checking struct {
	model.Check
	// retry is how often a check that failed is made again; -1 is the checker's
	// own.
	retry int
	// said are the statements that only a check would need.
	said []block
}

// usually is what keepalived does unless it is told otherwise.
func usually() checking {
	return checking{Check: model.Check{Interval: time.Minute, Timeout: 5 * time.Second, Rise: 1, Initial: model.InitialUp}, retry: -1}
}

// timing reads an option that all checkers have, and reports whether it is one.
func (s *server) timing(f block, c *checking) bool {
	into := map[string]*time.Duration{
		"delay_loop": &c.Interval, "delay_before_retry": &c.Fast, "connect_timeout": &c.Timeout, "misc_timeout": &c.Timeout,
	}
	switch key := f.keyword(); key {
	case "delay_loop", "delay_before_retry", "connect_timeout", "misc_timeout":
		t, ok := seconds(f.word(0))
		if !ok || t <= 0 {
			s.left(f.line, "%s %s: want seconds", key, f.word(0))
			return true
		}
		*into[key] = t
	case "retry", "nb_get_retry":
		n, err := strconv.Atoi(f.word(0))
		if err != nil || n < 0 || n >= 1000 {
			s.left(f.line, "%s %s: want 0 to 999", key, f.word(0))
			return true
		}
		c.retry = n
	case "connect_port":
		n, err := strconv.ParseUint(f.word(0), 10, 16)
		if err != nil {
			s.left(f.line, "connect_port %s: want a port", f.word(0))
			return true
		}
		c.Port = uint16(n)
	case "warmup":
		s.left(f.line, "warmup %s: not imported: first checks are spread over the interval anyway", f.word(0))
		return true
	default:
		return false
	}
	c.said = append(c.said, f)
	return true
}

// pause is keepalived's own delay_before_retry: 1 s, 3 s for HTTP_GET and SSL_GET,
// and that between checks for DNS_CHECK.
func pause(kind model.CheckType) time.Duration {
	switch kind {
	case model.CheckHTTP, model.CheckHTTPS:
		return 3 * time.Second
	case model.CheckDNS:
		return 0
	}
	return time.Second
}

// check reads a checker's block into the service's check.
func (s *server) check(b block, how checking, r model.RealServer) {
	retries := 1
	switch b.keyword() {
	case "TCP_CHECK":
		how.Type = model.CheckTCP
	case "HTTP_GET", "SSL_GET":
		how.Type, retries = model.CheckHTTP, 3
		if b.keyword() == "SSL_GET" {
			how.Type = model.CheckHTTPS
		}
	case "DNS_CHECK":
		how.Type, retries = model.CheckDNS, 3
		how.Query, how.Record = ".", "SOA" // keepalived's own
	case "UDP_CHECK":
		how.Type = model.CheckUDP
	case "MISC_CHECK":
		how.Type, retries = model.CheckExec, 0
	case "SMTP_CHECK":
		how.Type, how.Expect = model.CheckTCP, "^220"
		s.left(b.line, "SMTP_CHECK: the server is taken for well when it greets with 220")
	default:
		s.left(b.line, "%s: not imported: Fairlead has no check like it", b.keyword())
		return
	}
	urls := 0
	for _, f := range b.body {
		switch {
		case f.keyword() == "url":
			if urls++; urls > 1 {
				s.left(f.line, "url: one is asked for: the first is taken")
				continue
			}
			for _, u := range f.body {
				s.url(u, &how)
			}
		case s.timing(f, &how):
		default:
			s.checkOption(f, &how, r)
		}
	}
	if how.retry < 0 {
		how.retry = retries
	}
	how.Fall = how.retry + 1
	if how.Fast == 0 && how.retry > 0 && pause(how.Type) < how.Interval {
		how.Fast = pause(how.Type)
	}
	if how.Status == "" && (how.Type == model.CheckHTTP || how.Type == model.CheckHTTPS) {
		how.Status = "200-299" // keepalived's own
	}
	switch {
	case s.first == 0:
		s.v.Check, s.first = how.Check, b.line
	case !s.v.Check.Equal(how.Check):
		s.left(b.line, "%s of real server %s is otherwise than that in line %d: all of a service are checked as that says", b.keyword(), r, s.first)
	}
}

// url reads what is in an url block.
func (s *server) url(f block, c *checking) {
	switch f.keyword() {
	case "path":
		c.Path = f.word(0)
	case "status_code":
		c.Status = strings.ReplaceAll(f.rest(), " ", ",")
	case "virtualhost":
		c.Host = f.word(0)
	case "regex":
		c.Body = f.rest()
	case "digest":
		s.left(f.line, "digest: the body's MD5 is not looked at: say what it must hold by body, a regular expression")
	default:
		s.skip(f)
	}
}

// checkOption reads an option of some checkers.
func (s *server) checkOption(f block, c *checking, r model.RealServer) {
	switch {
	case f.keyword() == "type" && c.Type == model.CheckDNS:
		c.Record = strings.ToUpper(f.word(0))
	case f.keyword() == "name" && c.Type == model.CheckDNS:
		c.Query = f.word(0)
	case f.keyword() == "misc_path":
		s.command(f, c, r)
	case f.keyword() == "virtualhost":
		c.Host = f.word(0)
	case f.keyword() == "enable_sni" && c.Type == model.CheckHTTPS: // always done
	case f.keyword() == "alpha":
		c.Initial = model.InitialDown
	case f.keyword() == "misc_dynamic":
		s.left(f.line, "misc_dynamic: what a command ends with is no weight: an agent says those (agent: PORT)")
	default:
		s.skip(f)
	}
}

// command reads a script with its arguments. The address and the port of the
// server, where these are the last, are given by fairlead itself.
func (s *server) command(f block, c *checking, r model.RealServer) {
	words := strings.Fields(f.rest())
	port := strconv.Itoa(int(r.Port))
	n := len(words)
	switch {
	case n > 2 && words[n-2] == r.Address.String() && words[n-1] == port:
		words = words[:n-2]
	case n > 1 && words[n-1] == r.Address.String():
		words = words[:n-1]
		s.left(f.line, "misc_path: the command gets the port of the server, too, after its address")
	default:
		s.left(f.line, "misc_path: the command gets the address and the port of the server as its last arguments")
	}
	c.Command = words
}
