package traefik

import (
	"maps"
	"path/filepath"
	"slices"

	"fairlead/internal/model/gateway"
)

// withoutFiles removes the middlewares that name files, except for those files that the settings allow: the process
// that reads them can read more than everyone who sets labels.
func (d *Docker) withoutFiles(r *reporter, c *gateway.Config) {
	for _, name := range slices.Sorted(maps.Keys(c.HTTP.Middlewares)) {
		for _, file := range gateway.Files(c.HTTP.Middlewares[name]) {
			if filepath.IsAbs(file) && slices.Contains(d.opt.LabelFiles, file) {
				continue
			}
			r.fail(r.object(middleware, name), "labels must not name files, and this one names %s: allow the file with "+
				"providers.docker.labelFiles (providers.swarm.labelFiles), or write the middleware to a file of the "+
				"file provider, and refer to it with NAME@file", file)
			delete(c.HTTP.Middlewares, name)
			break
		}
	}
}
