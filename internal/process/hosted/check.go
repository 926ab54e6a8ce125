// Package hosted runs the gateway that fairlead.yaml declares, as a child of the daemon.
package hosted

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/frontend/traefik"
	"fairlead/internal/gateway"
	"fairlead/internal/gateway/acme"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/stream"
	"fairlead/internal/model"
	values "fairlead/internal/model/gateway"
)

// Checked is a declared gateway with the states of its objects. Its servers are those with a
// URL: the others depend on the host.
type Checked struct {
	*gateway.Gateway
	declared model.Gateway
	// missing are the certificates that resolvers can never obtain.
	missing []values.CertificateState
}

// NewChecked checks a declared gateway. It opens no listener; it reads the files of
// certificates and users.
func NewChecked(g model.Gateway) (*Checked, error) {
	static, config := traefik.Qualified(g.Static, g.Config)
	withoutSelectors(&config)
	checking, err := gateway.Checking(static, &config, nil)
	return &Checked{checking, g, acme.Check(&config, static)}, err
}

// elsewhere is the reason of an object that refers to one of a container's labels, which may
// come later, and inCluster that of one that refers to an object of the cluster.
var (
	elsewhere = regexp.MustCompile(`@docker (does not exist|is disabled)`)
	inCluster = regexp.MustCompile(`@cluster (does not exist|is disabled)`)
)

// Mistakes returns what is wrong with the objects, each at its part of the Spec.
func (c *Checked) Mistakes() api.Mistakes {
	all := relativePaths(c.declared.Config.TLS)
	if l := c.declared.Static.AccessLog; l != nil && !filepath.IsAbs(l.FilePath) {
		all = append(all, api.Mistake{At: "gateway.accesslog",
			Text: "want filePath, an absolute path: the gateway has no standard output"})
	}
	for _, s := range c.Status() {
		if s.State != status.Disabled || strings.HasSuffix(s.Name, "@internal") {
			continue
		}
		for _, reason := range s.Reasons {
			if (cmp.Or(c.declared.Static.Docker, c.declared.Static.Swarm) == nil ||
				!elsewhere.MatchString(reason)) && !inCluster.MatchString(reason) {
				all = append(all, api.Mistake{At: c.partOf(s), Text: bare(reason)})
			}
		}
	}
	for _, missing := range c.missing {
		all = append(all, api.Mistake{At: c.askedBy(missing), Text: fmt.Sprintf("certificate for %s: %s",
			strings.Join(missing.Names, ", "), missing.Reason)})
	}
	return all
}

// askedBy returns the part of the Spec that asks for a certificate.
func (c *Checked) askedBy(missing values.CertificateState) string {
	for _, router := range missing.Routers {
		for _, kind := range []string{"router", stream.RouterKind} {
			if at := c.partOf(status.Status{Kind: kind, Name: router}); at != "gateway" {
				return at
			}
		}
	}
	return "gateway.tls.stores.default"
}

// Notes returns what has an effect that its author may not expect.
func (c *Checked) Notes() (notes []string) {
	for _, s := range c.Status() {
		if s.State == status.Warning {
			for _, reason := range s.Reasons {
				notes = append(notes, fmt.Sprintf("gateway %s %s: %s", s.Kind, bare(s.Name), bare(reason)))
			}
		}
	}
	for _, n := range gateway.Unused(c.declared.Static) {
		notes = append(notes, "gateway: "+n)
	}
	return notes
}

// partOf returns the part of the Spec that declares an object.
func (c *Checked) partOf(s status.Status) string {
	for i, cert := range c.declared.Config.TLS.Certificates {
		if s.Kind == "certificate" && cert.CertFile == s.Name {
			return fmt.Sprintf("gateway.tls.certificates[%d]", i)
		}
	}
	for _, o := range c.declared.Objects() {
		if strings.EqualFold(o.Kind, s.Kind) && o.Name == bare(s.Name) {
			return "gateway." + o.Section + "." + o.Name
		}
	}
	return "gateway"
}

// bare returns a text with the names as the files have them.
func bare(text string) string { return strings.ReplaceAll(text, "@file", "") }

// relativePaths returns the certificates whose files have no absolute path: the daemon has
// another working directory than the command.
func relativePaths(c values.TLS) (all api.Mistakes) {
	for i, cert := range c.Certificates {
		for _, path := range []string{cert.CertFile, cert.KeyFile} {
			if !filepath.IsAbs(path) && !strings.Contains(path, "-----BEGIN") {
				all = append(all, api.Mistake{At: fmt.Sprintf("gateway.tls.certificates[%d]", i),
					Text: fmt.Sprintf("file %s: want an absolute path", path)})
			}
		}
	}
	return all
}
