-- Views with the same statement in both dialects.

CREATE VIEW serviceEndpoint AS
SELECT
    siteName, hostName, serviceFlavour, serviceURI, voName, gridSite, production, monitored,
    validFrom, validTo, timestamp, messageId, publisher, receivedAt, source
FROM endpoint_statement
WHERE holds;
COMMENT ON VIEW serviceEndpoint IS
    'Message class: the endpoints of sites, and when they are valid.';

CREATE VIEW siteGroup AS
SELECT
    siteName, groupName, groupType, weight, validFrom, validTo, timestamp, messageId, publisher,
    receivedAt, source
FROM group_statement
WHERE holds;
COMMENT ON VIEW siteGroup IS
    'Message class: the federations, regions and other groups that sites belong to.';

CREATE VIEW siteContact AS
SELECT
    siteName, contact, timestamp, messageId, publisher, receivedAt, source
FROM contact_statement
WHERE holds;
COMMENT ON VIEW siteContact IS
    'Message class: the contacts of sites. One without a contact was removed.';

CREATE VIEW downtime AS
SELECT
    downtimeId, siteName, hostName, serviceFlavour, startTime, endTime, classification,
    severity, description, timestamp, messageId, publisher, receivedAt, announcedAt, source
FROM downtime_statement
WHERE holds;
COMMENT ON VIEW downtime IS
    'Message class: announced downtimes. One that ends when it starts is cancelled.';

CREATE VIEW report_site_contact AS
SELECT siteName AS site, contact, timestamp AS announced_at
FROM siteContact
WHERE contact IS NOT NULL;
COMMENT ON VIEW report_site_contact IS 'The contacts of sites: the newest announcement of each.';

CREATE VIEW report_exclusion AS
SELECT
    exclusion_id, kind, monitoring_host, metric_name, site, service_flavour, host_name, start_time,
    end_time, start_s, end_s, reason, who, added_at
FROM exclusion_history
WHERE removed_at IS NULL;
COMMENT ON VIEW report_exclusion IS
    'Periods that do not count in reports: the exclusions in force. An empty selector matches '
    'everything.';

CREATE VIEW report_horizon AS
SELECT day FROM horizon;
COMMENT ON VIEW report_horizon IS
    'The first day that can be recomputed, once results have been pruned; no row until then.';

CREATE VIEW endpoint_availability AS
SELECT
    report, day, site, service_flavour, host_name, availability, reliability, ok_s, warning_s,
    critical_s, unknown_s, missing_s, downtime_s, excluded_s, until, run_id
FROM published_figure
WHERE level = 'endpoint';
COMMENT ON VIEW endpoint_availability IS 'Availability of endpoints, by site and day.';

CREATE VIEW service_availability AS
SELECT
    report, day, site, service_flavour, availability, reliability, ok_s, warning_s, critical_s,
    unknown_s, missing_s, downtime_s, excluded_s, until, run_id
FROM published_figure
WHERE level = 'service';
COMMENT ON VIEW service_availability IS 'Availability of service flavours, by site and day.';

CREATE VIEW function_availability AS
SELECT
    report, day, site, function, availability, reliability, ok_s, warning_s, critical_s, unknown_s,
    missing_s, downtime_s, excluded_s, until, run_id
FROM published_figure
WHERE level = 'function';
COMMENT ON VIEW function_availability IS 'Availability of functions, by site and day.';

CREATE VIEW site_availability AS
SELECT
    report, day, site, availability, reliability, ok_s, warning_s, critical_s, unknown_s,
    missing_s, downtime_s, excluded_s, until, run_id
FROM published_figure
WHERE level = 'site';
COMMENT ON VIEW site_availability IS 'Availability of sites, by day.';

CREATE VIEW group_availability AS
SELECT
    p.report, p.day, g.group_type, g.group_name, g.availability, g.reliability, g.sites_expected,
    g.sites_known, p.run_id
FROM published_run AS p
JOIN group_figure AS g ON g.run_id = p.run_id;
COMMENT ON VIEW group_availability IS 'Availability of groups of sites, by day.';

CREATE VIEW report_group_site AS
SELECT
    p.report, p.day, g.group_type, g.group_name, g.site, g.weight, f.availability, f.reliability,
    f.ok_s, f.warning_s, f.critical_s, f.unknown_s, f.missing_s, f.downtime_s, f.excluded_s,
    p.run_id
FROM published_run AS p
JOIN group_site AS g ON g.run_id = p.run_id
-- The whole key of `figure`, so that a query of members alone does not read figures.
LEFT JOIN figure AS f
    ON f.run_id = g.run_id AND f.level = 'site' AND f.site = g.site
    AND f.service_flavour = '' AND f.host_name = '' AND f.function = '';
COMMENT ON VIEW report_group_site IS
    'The sites of a group that a report expects, by day: the weights that count, and the figures.';

CREATE VIEW report_revision_figure AS
SELECT
    v.report, v.month, v.revision, v.sealed, v.day, f.level, f.site, f.service_flavour, f.host_name,
    f.function, f.availability, f.reliability, f.ok_s, f.warning_s, f.critical_s, f.unknown_s,
    f.missing_s, f.downtime_s, f.excluded_s, v.run_id
FROM report_revision AS v
JOIN figure AS f ON f.run_id = v.run_id;
COMMENT ON VIEW report_revision_figure IS
    'The figures of each revision of a sealed month, by day, as they were published.';

CREATE VIEW report_revision_group AS
SELECT
    v.report, v.month, v.revision, v.sealed, v.day, g.group_type, g.group_name, g.availability,
    g.reliability, g.sites_expected, g.sites_known, v.run_id
FROM report_revision AS v
JOIN group_figure AS g ON g.run_id = v.run_id;
COMMENT ON VIEW report_revision_group IS
    'The figures of groups in each revision of a sealed month, by day, as they were published.';

CREATE VIEW report_revision_group_site AS
SELECT
    v.report, v.month, v.revision, v.sealed, v.day, g.group_type, g.group_name, g.site, g.weight,
    v.run_id
FROM report_revision AS v
JOIN group_site AS g ON g.run_id = v.run_id;
COMMENT ON VIEW report_revision_group_site IS
    'The sites of groups in each revision of a sealed month, and their weights, by day.';

CREATE VIEW report_change AS
SELECT
    c.run_id, r.report, r.day, c.level, c.names, c.old, c.new, c.reason, c.old_run_id
FROM report_change_row AS c
JOIN run AS r ON r.run_id = c.run_id;
COMMENT ON VIEW report_change IS 'The figures that a run changed since the previous run, and why.';

CREATE VIEW archive_source AS
SELECT
    k.source_id, k.site_name, k.service_uri, k.service_type, k.metric_type, k.data_type, k.role,
    k.nagios_name, k.encrypted,
    p.identity AS publisher
FROM result_source AS k
JOIN publisher AS p ON p.publisher_id = k.publisher_id;
COMMENT ON VIEW archive_source IS 'The names of results by source_id; missing ones are empty.';

CREATE VIEW report_archive AS
SELECT a.run_id, r.report, r.day AS report_day, a.day, a.version
FROM run_archive AS a
JOIN run AS r ON r.run_id = a.run_id;
COMMENT ON VIEW report_archive IS
    'The versions of archived days that runs have read instead of the database.';
