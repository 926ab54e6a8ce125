package importer

import (
	"strconv"
	"strings"
	"time"

	"fairlead/internal/model"
)

// checkSettings is a check while it is imported.
type checkSettings struct {
	model.Check
	// retry is how often a failed check is repeated; -1 means the checker's default.
	retry int
	// statements are the statements that only checks use.
	statements []block
}

// defaultCheck returns keepalived's defaults.
func defaultCheck() checkSettings {
	return checkSettings{Check: model.Check{Interval: time.Minute, Timeout: 5 * time.Second, Rise: 1,
		Initial: model.InitialUp}, retry: -1}
}

// timing imports an option that all checkers have. It reports whether f is such an
// option.
func (s *server) timing(f block, c *checkSettings) bool {
	into := map[string]*time.Duration{
		"delay_loop": &c.Interval, "delay_before_retry": &c.Fast, "connect_timeout": &c.Timeout,
		"misc_timeout": &c.Timeout,
	}
	switch key := f.keyword(); key {
	case "delay_loop", "delay_before_retry", "connect_timeout", "misc_timeout":
		t, ok := seconds(f.word(0))
		if !ok || t <= 0 {
			s.report(f.line, "%s %s: want seconds", key, f.word(0))
			return true
		}
		*into[key] = t
	case "retry", "nb_get_retry":
		n, err := strconv.Atoi(f.word(0))
		if err != nil || n < 0 || n >= 1000 {
			s.report(f.line, "%s %s: want 0 to 999", key, f.word(0))
			return true
		}
		c.retry = n
	case "connect_port":
		n, err := strconv.ParseUint(f.word(0), 10, 16)
		if err != nil {
			s.report(f.line, "connect_port %s: want a port", f.word(0))
			return true
		}
		c.Port = uint16(n)
	case "warmup":
		s.report(f.line, "warmup %s: not imported: Fairlead always spreads the first checks over the interval",
			f.word(0))
		return true
	default:
		return false
	}
	c.statements = append(c.statements, f)
	return true
}

// pause returns keepalived's default of delay_before_retry: 1 s, 3 s for HTTP_GET and
// SSL_GET. It returns 0 for DNS_CHECK, whose default is the interval of checks.
func pause(kind model.CheckType) time.Duration {
	switch kind {
	case model.CheckHTTP, model.CheckHTTPS:
		return 3 * time.Second
	case model.CheckDNS:
		return 0
	}
	return time.Second
}

// check imports a checker's block as the service's check.
func (s *server) check(b block, how checkSettings, r model.RealServer) {
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
		how.Query, how.Record = ".", "SOA" // keepalived's defaults
	case "UDP_CHECK":
		how.Type = model.CheckUDP
	case "MISC_CHECK":
		how.Type, retries = model.CheckExec, 0
	case "SMTP_CHECK":
		how.Type, how.Expect = model.CheckTCP, "^220"
		s.report(b.line, "SMTP_CHECK: changed: the server counts as healthy if it greets with 220")
	default:
		s.report(b.line, "%s: not imported: Fairlead has no such check", b.keyword())
		return
	}
	urls := 0
	for _, f := range b.body {
		switch {
		case f.keyword() == "url":
			if urls++; urls > 1 {
				s.report(f.line, "url: not imported: a check requests one URL: the first one is used")
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
		how.Status = "200-299" // keepalived's default
	}
	switch {
	case s.first == 0:
		s.v.Check, s.first = how.Check, b.line
	case !s.v.Check.Equal(how.Check):
		s.report(b.line, "%s of real server %s differs from the check in line %d: all real servers of a service "+
			"have that check", b.keyword(), r, s.first)
	}
}

// url imports a statement of an url block.
func (s *server) url(f block, c *checkSettings) {
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
		s.report(f.line, "digest: not imported: Fairlead does not check the body's MD5 digest: set body to a "+
			"regular expression that the body must match")
	default:
		s.skip(f)
	}
}

// checkOption imports an option that only some checkers have.
func (s *server) checkOption(f block, c *checkSettings, r model.RealServer) {
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
		s.report(f.line, "misc_dynamic: not imported: a command's exit code does not set the weight: use an agent "+
			"for that (agent: PORT)")
	default:
		s.skip(f)
	}
}

// command imports a script with its arguments. It removes the address and the port of
// the server from the end, because fairlead adds them itself.
func (s *server) command(f block, c *checkSettings, r model.RealServer) {
	words := strings.Fields(f.rest())
	port := strconv.Itoa(int(r.Port))
	n := len(words)
	switch {
	case n > 2 && words[n-2] == r.Address.String() && words[n-1] == port:
		words = words[:n-2]
	case n > 1 && words[n-1] == r.Address.String():
		words = words[:n-1]
		s.report(f.line, "misc_path: changed: the command also gets the port of the server after its address")
	default:
		s.report(f.line, "misc_path: changed: the command gets the address and the port of the server as its last "+
			"arguments")
	}
	c.Command = words
}
