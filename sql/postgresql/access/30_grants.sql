-- The rights of the roles on the objects of the schema; may be run repeatedly. Each right that a
-- program needs is listed: no role may call a new function until it is granted here.
DO $$
BEGIN
    IF to_regclass('alembic_version') IS NULL THEN
        RAISE WARNING 'nothing was granted: the database has no schema yet; run `sam-db upgrade`';
        RETURN;
    END IF;
    -- By default every role may execute a function.
    REVOKE EXECUTE ON FUNCTION
        demand, is_time, demand_time, lock_names, make_names, make_publishers, name_publishers,
        identity_or_operator, make_endpoints, has_relation, make_partitions, make_temporary,
        open_staging, close_staging, note_duplicates, stage_begin, stage_end, source_names,
        metricOutput_check, metricOutput_names, metricOutput_add, metricOutput_compare,
        metricOutput_merge, metricOutput_load, metricOutput_stage, lock_statements,
        mark_statement_days, prepare_statements, store_statements, stage_statement,
        serviceEndpoint_load, siteGroup_load, siteContact_load, downtime_load, mark_days,
        exclusion_change, read_history, fold_batches, fold_news, take_changes, may_change,
        keep_published, keep_run, keep_figures, sweep_runs, seal_month, rows_of_message,
        operation_digest, append_operation, record_operation, keep_operations
    FROM PUBLIC;

    IF (
        SELECT count(*) FROM pg_roles
        WHERE rolname IN (
            'sam_loader', 'sam_topology', 'sam_reporter', 'sam_archiver', 'sam_reader'
        )
    ) < 5 THEN
        RAISE WARNING 'nothing was granted: roles are missing; run `sam-db sql --roles`';
        RETURN;
    END IF;

    GRANT SELECT ON alembic_version, compatibility
    TO sam_loader, sam_topology, sam_reporter, sam_archiver, sam_reader;
    GRANT EXECUTE ON FUNCTION record_operation TO sam_loader, sam_reporter;

    -- The loader: INSERT on the class views; it can't read the results that were loaded, only when
    -- each probe and each site last sent one.
    GRANT INSERT ON metricOutput, serviceEndpoint, siteGroup, siteContact, downtime TO sam_loader;
    GRANT SELECT, INSERT, UPDATE (state, reason, error, changed_at) ON dead_letter TO sam_loader;
    GRANT SELECT ON publisher TO sam_loader, sam_reader;
    -- To which site a host belongs decides whether the policy allows a record.
    GRANT SELECT (site, host_name, valid_from_s, valid_to_s) ON report_topology TO sam_loader;
    GRANT SELECT ON watched_probe, probe_name, watched_site, site_probe, fold_state TO sam_loader;
    -- The database sets the time and the user.
    GRANT INSERT (
        consumer, host, process_id, brokers, publishers, messages, rows, duplicates, dead_letters,
        repeated_dead_letters, summarised_dead_letters, checks
    ) ON loaded_batch TO sam_loader;
    GRANT EXECUTE ON FUNCTION
        lock_names, lock_statements, make_publishers, name_publishers, make_partitions,
        open_staging, metricOutput_load, serviceEndpoint_load, siteGroup_load, siteContact_load,
        downtime_load, rows_of_message, fold_news
    TO sam_loader;

    -- Imports of topology: read what was said, and insert what has changed.
    GRANT SELECT ON
        serviceEndpoint, siteGroup, downtime, endpoint_statement, group_statement,
        contact_statement, downtime_statement, report_downtime
    TO sam_topology;
    GRANT INSERT ON serviceEndpoint, siteGroup, siteContact, downtime TO sam_topology;
    GRANT EXECUTE ON FUNCTION lock_names, lock_statements, fold_news TO sam_topology;

    -- The reporter: reads the inputs, and writes reports. Functions seal months, and delete reports
    -- that no view shows any more.
    GRANT SELECT ON
        current_status, report_result, report_instance, report_source, report_status,
        report_topology, report_downtime, report_site_group, report_site_contact, report_exclusion,
        exclusion_history, report_newest_result, report_changed_day, report_horizon, report_run,
        report_change, report_seal, report_candidate, report_revision_figure,
        report_revision_group, report_revision_group_site, report_revision, endpoint_availability, service_availability,
        function_availability, site_availability, group_availability, report_group_site, site_month,
        group_month, status_timeline, status_trend, report_archive, database_identity
    TO sam_reporter, sam_reader;
    GRANT SELECT, INSERT, UPDATE (
        state, finished_at, until, results_read, results_ignored, instances, results_digest,
        topology_digest, downtimes_digest, exclusions_digest, input_digest, newest_result,
        downtimes, exclusions, change_no
    ) ON run TO sam_reporter;
    GRANT SELECT, INSERT, UPDATE ON published_run TO sam_reporter;
    GRANT SELECT ON seal TO sam_reporter;
    GRANT SELECT, INSERT, UPDATE, DELETE ON candidate_run TO sam_reporter;
    -- Exclusions are never deleted.
    GRANT SELECT, INSERT, UPDATE (removed_at, removed_by, removed_because) ON exclusion TO sam_reporter;
    GRANT SELECT, INSERT ON figure, group_figure, group_site, timeline_segment TO sam_reporter;
    GRANT INSERT ON report_change_row TO sam_reporter;
    GRANT SELECT, INSERT ON run_archive TO sam_reporter;
    GRANT EXECUTE ON FUNCTION take_changes, may_change, sweep_runs, seal_month TO sam_reporter;

    -- The archiver: reads closed days, and writes nothing but its own record. Numbering the changes
    -- that a version includes changes no data.
    GRANT SELECT ON
        database_identity, metric_result, metric_result_detail, gatherer, archive_source,
        sealed_version, report_instance, report_topology, report_site_group, report_downtime,
        report_exclusion, report_newest_result, report_changed_day, report_horizon
    TO sam_archiver;
    GRANT SELECT, INSERT, UPDATE ON archived_day TO sam_archiver;
    GRANT EXECUTE ON FUNCTION take_changes TO sam_archiver;

    -- The reader: people and dashboards, who also read the inputs and the reports.
    GRANT SELECT ON
        metricOutput, serviceEndpoint, siteGroup, siteContact, downtime, endpoint_statement,
        group_statement, contact_statement, downtime_statement, archived_day, load_audit,
        operation_log
    TO sam_reader;
END
$$;
