// Package wording has the words in which commands and the dashboard show states, reasons, ages and figures: the
// cells of their tables. It turns values into text, and reads nothing.
package wording

import (
	"fmt"
	"strings"

	"fairlead/internal/api"
)

// OrDash returns the text, or a dash if it is empty.
func OrDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// Number writes a count, or a dash if there is none.
func Number(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// Traffic writes bytes, and packets in parentheses.
func Traffic(bytes, packets uint64) string { return fmt.Sprintf("%s (%d)", BytesText(bytes), packets) }

// BytesText writes a number of bytes with binary units: 12 B, 1.5 KiB.
func BytesText(bytes uint64) string {
	unit, value := "", float64(bytes)
	for _, u := range []string{"K", "M", "G", "T", "P"} {
		if value < 1024 {
			break
		}
		unit, value = u, value/1024
	}
	if unit == "" {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%.1f %siB", value, unit)
}

// About returns the details of an event in one line.
func About(e api.Event) string {
	parts := []string{e.Detail}
	if e.Detail == "" {
		parts = []string{Readable(strings.Join(e.Commands, "; "))}
	}
	if e.By != "" && e.Kind == api.Healed {
		parts = append(parts, "# changed by "+e.By)
	}
	return strings.TrimSpace(strings.Join(parts, "  "))
}
