package command

import (
	"fmt"
	"strings"

	"fairlead/internal/api"
	"fairlead/internal/wording"
)

// MaxFile is the maximum size of a file in bytes: the daemon accepts no larger
// request.
const MaxFile = api.MaxSpec

// PrintApplied prints one line per change.
func (r *Remote) PrintApplied(result api.Result) error {
	r.Notes(result.Notes)
	if r.Output == "json" {
		return r.JSON(result)
	}
	var lines []string
	for _, change := range result.Changes {
		line := change.String()
		for _, v := range result.Attachments {
			if change.Kind == "attachment" && change.Name == v.Name && v.Status == api.Up {
				line += fmt.Sprintf("  %s  %s", v.InterfaceName(), wording.OrDash(strings.Join(Addresses(v), " ")))
			} else if change.Kind == "attachment" && change.Name == v.Name {
				line += ", waits for " + v.Ref
			}
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		lines = []string{"nothing to do"}
	}
	return r.Out.Lines(lines...)
}
