package file

import (
	"fairlead/internal/frontend/schema"
	"fairlead/internal/frontend/traefik"
)

// Schema returns the schema of the files that Read reads. Read is stricter: it also knows how
// fields depend on each other, and the forms of texts.
func Schema() schema.Schema {
	s := objectOf((&reader{Set: &Set{}}).documentFields())
	s.PatternProperties = map[string]schema.Schema{"^" + extension: schema.Schema{}.About(
		"anything, for YAML anchors to refer to")}
	s.Defs = traefik.Definitions()
	s.Dialect, s.Title = schema.Dialect, "fairlead.yaml"
	s.Description = "networks, attachments, services and the gateway of a host, for fairlead apply"
	return s
}
