"""From metric results to status timelines, availability and reliability, and pages."""
